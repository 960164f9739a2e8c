"""Joins with stored tables give the answers of DuckDB for all frame and train sizes and policies."""

from __future__ import annotations

from collections import Counter
from random import Random

import duckdb
import pytest
from tests.support.differential.engine_runs import CHOICES, TRAINS, finish
from tests.support.differential.families.table_joins import NODES, Row, TableJoinScript, written
from tests.support.scale import scaled

from mavstream_server.scheduling.registry import POLICIES
from mavstream_server.testing import run_plan

SQL_STREAM = "_arrival BIGINT, id BIGINT, room TEXT, level BIGINT, warm BOOL, x DOUBLE, seen BIGINT"
SQL_TABLE = SQL_STREAM.replace("_arrival BIGINT, id", "_from BIGINT, _to") + ", label TEXT, n BIGINT"

LAST = (1 << 63) - 1


def oracle(script: TableJoinScript) -> Counter[Row]:
    """Join each row with the version that was current when it arrived."""
    versions = [(at, rows) for at, kind, rows in script.events if kind == "table"]
    ends = [at for at, _ in versions[1:]] + [LAST]
    spans = zip(versions, ends, strict=bool(versions))
    table = [(at, end, *row) for (at, rows), end in spans for row in rows]
    rows = [(at, *row) for at, kind, part in script.events if kind == "rows" for row in part]
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE l ({SQL_STREAM}); CREATE TABLE r ({SQL_TABLE})")
        for name, given in (("l", rows), ("r", table)):
            if given:
                marks = ", ".join("?" * len(given[0]))
                database.executemany(f"INSERT INTO {name} VALUES ({marks})", given)
        on = ["l._arrival >= r._from", "l._arrival < r._to", *(f"l.{key} = r.{key}" for key in script.keys)]
        on += [] if script.where is None else [script.where]
        join = f"{script.how} JOIN r ON {' AND '.join(f'({part})' for part in on)}"
        return Counter(database.execute(f"SELECT id, l.room, label, n, id + n FROM l {join}").fetchall())


FIRST = {"id": "l.id", "level": "l.level", "cap": "r.n"}


@pytest.mark.parametrize("seed", range(scaled(60, 1500)))
def test_a_join_gives_the_rows_of_duckdb(seed: int) -> None:
    random = Random(seed)
    script = TableJoinScript.random(random)
    expected = oracle(script)
    for _ in range(3):
        policy, options = random.choice(CHOICES)
        with written(script, random.randrange(1000), random.random() < 0.3) as (stream, table):
            run = run_plan(
                {**NODES, "j": script.node},
                "j",
                [stream],
                tables=[table],
                policy=policy,
                policy_options=options,
                train=random.choice(TRAINS),
            )
            finish(run)
            assert Counter(run.answers()) == expected


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_answer_of_two_joins_with_tables_does_not_depend_on_the_policy(policy: str) -> None:
    random = Random(7)
    script = TableJoinScript(["room"], None, "left")
    script.events = TableJoinScript.random(random, 400).events
    nodes = {
        **NODES,
        "again": {"op": "source", "stream": "readings"},
        "both": {"op": "union", "inputs": ["in", "again"], "order": "time"},
        "first": {**script.node, "left": "both", "compute": FIRST},
        "second": {
            "op": "join",
            "left": "first",
            "right": "rooms",
            "on": [["level", "level"]],
            "compute": {"id": "l.id", "cap": "l.cap", "label": "r.label"},
        },
        "out": {
            "op": "aggregate",
            "input": "second",
            "window": {"kind": "tumbling", "size": 50},
            "compute": {"n": "count(*)", "first": "first(id)", "last": "last(label)", "caps": "sum(cap)"},
        },
    }
    answers = []
    for train, chosen in ((4096, "rr"), (5, policy), (64, policy)):
        with written(script, train, small=True) as (stream, table):
            run = run_plan(nodes, "out", [stream], tables=[table], policy=chosen, train=train)
            finish(run)
            answers.append(run.answers())
    assert len(answers[0]) > 5
    assert answers[0] == answers[1] == answers[2]
