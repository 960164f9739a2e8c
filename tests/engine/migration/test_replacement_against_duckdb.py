"""Answers on both sides of a replacement are those that DuckDB gives for the rows before and behind it."""

from __future__ import annotations

from collections import Counter
from random import Random

import duckdb
import pytest
from tests.conftest import MakeStream
from tests.support.engine.seam_sink import SeamSink
from tests.support.plans.equivalent_plans import counting, readings_of, rows, typed
from tests.support.plans.rewriting_steps import IN, Nodes, select
from tests.support.scale import scaled

from mavstream_server.engine.migration.replacement import NewPlan, Replaced
from mavstream_server.testing import run_plan

FIELDS = "ts timestamp, home int, x int"
SECOND = 1_000_000
OLD = select("in", "x % 2 = 0")
OTHER = {"other": {"op": "source", "stream": "other"}}
JOIN = {
    "op": "join",
    "left": "in",
    "right": "other",
    "on": [["home", "home"]],
    "within": "4s",
    "compute": {"x": "l.x", "y": "r.x"},
}
# A row of each stream per second, in order: the watermark at the seam is the time of the row before it.
WINDOWS = """
    SELECT home, count(*), sum(x), ts // {size} * {size} AS start, start + {size} AS stop FROM readings
    GROUP BY home, start HAVING stop > ({seam} - 1) * 1000000
"""
CASES: dict[str, tuple[Nodes, str]] = {
    "another select": (
        {**IN, "out": select("in", "x % 3 = 0")},
        "SELECT * FROM readings WHERE x % 3 = 0 AND ts >= {seam} * 1000000",
    ),
    "other columns": (
        {**IN, "out": {"op": "project", "input": "in", "compute": {"twice": "x * 2"}}},
        "SELECT x * 2 FROM readings WHERE ts >= {seam} * 1000000",
    ),
    "windows": ({**IN, "out": counting("in")}, WINDOWS.replace("{size}", "10000000")),
    "another stream": (
        {**OTHER, "out": counting("other", {"kind": "tumbling", "size": "7s"})},
        WINDOWS.replace("{size}", "7000000").replace("readings", "other").replace("{seam}", "{end}"),
    ),
    "a join": (
        {**IN, **OTHER, "out": JOIN},
        "SELECT l.x, r.x FROM readings l JOIN other r ON l.home = r.home AND abs(l.ts - r.ts) <= 4000000 "
        "WHERE l.ts >= {seam} * 1000000 OR r.ts >= {end} * 1000000",
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(scaled(3, 30)))
def test_both_sides_of_the_seam_are_answered_as_duckdb_does(stream: MakeStream, case: str, seed: int) -> None:
    random, (new, sql) = Random(seed), CASES[case]
    readings, other = readings_of(stream), stream("other", FIELDS, event_time="ts")
    sink = SeamSink()
    run = run_plan({**IN, "out": OLD}, "out", [readings, other], train=random.randrange(1, 9), sink=sink)
    for each in (readings, other):
        each.rows(*rows(0, 60))
    for _ in range(random.randrange(40)):
        run.engine.step()
    change, found = NewPlan(typed(new, "out", readings, other)), list[Replaced | str]()
    sink.watch(run)
    run.engine.replace("q", change, 1, found.append)
    while not found:
        run.engine.step()
    for each in (readings, other):
        each.rows(*rows(60, 60))
        each.complete()
    answers, (outcome,) = run.rows(), found
    assert isinstance(outcome, Replaced)
    database = duckdb.connect()
    for name in ("readings", "other"):
        database.execute(f"CREATE TABLE {name} (ts BIGINT, home INT, x INT)")
        database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows(0, 120))
    seam = sink.seam["readings"]
    before = f"SELECT * FROM readings WHERE x % 2 = 0 AND ts < {seam} * 1000000"
    after = sql.format(seam=seam, end=60)
    assert Counter(answers[: outcome.offset]) == Counter(database.execute(before).fetchall())
    assert Counter(answers[outcome.offset :]) == Counter(database.execute(after).fetchall())
