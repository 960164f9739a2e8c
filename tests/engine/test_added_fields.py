"""Streams get fields while queries run: these go on as they are, and new ones see the fields."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from tests.conftest import MakeStream

from mavstream_protocol.schema import Schema
from mavstream_server.engine.engine import Engine
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

US = 1_000_000
SOURCE = {"op": "source", "stream": "readings"}
HOT = {"in": SOURCE, "out": {"op": "select", "input": "in", "where": "x >= 10"}}
DISTINCT = {
    "in": SOURCE,
    "out": {"op": "distinct", "input": "in", "window": {"kind": "tumbling", "size": "1s"}},
}
PER_ROOM = {
    "in": SOURCE,
    "out": {
        "op": "aggregate",
        "input": "in",
        "by": ["room"],
        "window": {"kind": "tumbling", "size": "1s"},
        "compute": {"n": "count(*)", "known": "count(wet)", "x": "sum(x)"},
    },
}


class Bench:
    """An engine over one stream that gets fields, and queries on it."""

    def __init__(self, readings: ScriptedStream, clock: ManualClock) -> None:
        self.readings = readings
        self.clock = clock
        self.engine = Engine(clock, train=8)
        self.engine.attach(readings.name, readings.reader)

    def start(self, id_: str, nodes: dict[str, Any], **request: Any) -> PlanRun:
        return run_plan(nodes, "out", [self.readings], engine=self.engine, id_=id_, **request)

    def feed(self, *rows: tuple[Any, ...]) -> None:
        self.readings.rows(*rows, frame=3)
        for _ in range(3):
            self.engine.run()
            self.clock.advance(seconds=2)
        self.engine.run()


@pytest.fixture
def bench(stream: MakeStream, clock: ManualClock) -> Bench:
    return Bench(stream("readings", "ts timestamp, x int", event_time="ts"), clock)


def old_rows(start: int, stop: int) -> list[tuple[Any, ...]]:
    return [(n * 100_000, n) for n in range(start, stop)]


def new_rows(start: int, stop: int) -> list[tuple[Any, ...]]:
    rooms = ("attic", "hall", None)
    return [(n * 100_000, n, None if n % 4 == 0 else n % 2 == 0, rooms[n % 3]) for n in range(start, stop)]


def answer(sql: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the answer of DuckDB over rows of all fields; older ones are short."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE readings (ts BIGINT, x BIGINT, wet BOOLEAN, room TEXT)")
    connection.executemany(
        "INSERT INTO readings VALUES (?, ?, ?, ?)", [(*row, None, None)[:4] for row in rows]
    )
    return sorted(connection.execute(sql).fetchall(), key=repr)


def test_a_running_query_goes_on_with_the_columns_that_it_has(bench: Bench) -> None:
    run = bench.start("old", HOT)
    bench.feed(*old_rows(0, 15))
    query = run.query
    bench.readings.add_fields("wet bool null, room string null")
    bench.feed(*new_rows(15, 30))
    assert run.answers() == [(n * 100_000, n) for n in range(10, 30)]
    assert bench.engine.queries["old"] is query
    assert run.schema.names == ("ts", "x")
    assert query.output.counters == {}


def test_new_queries_read_old_rows_with_nulls(bench: Bench) -> None:
    rows = [*old_rows(0, 25), *new_rows(25, 60)]
    bench.feed(*rows[:25])
    bench.readings.add_fields("wet bool null, room string null")
    bench.feed(*rows[25:])
    found = bench.start("new", HOT).rows()
    assert found == [(*row, None, None)[:4] for row in rows[10:]]
    windows = bench.start("windows", PER_ROOM)
    bench.readings.complete()
    expected = answer(
        "SELECT ts // 1000000 AS second, room, count(*), count(wet), sum(x) FROM readings GROUP BY ALL",
        rows,
    )
    got = [(start // US, room, n, known, x) for room, n, known, x, start, _ in windows.rows()]
    assert sorted(got, key=repr) == expected


def test_a_window_that_is_open_closes_over_rows_of_both_sides(bench: Bench) -> None:
    nodes = {
        "in": SOURCE,
        "out": {
            "op": "aggregate",
            "input": "in",
            "window": {"kind": "tumbling", "size": "1s"},
            "compute": {"n": "count(*)", "x": "sum(x)"},
        },
    }
    run = bench.start("sums", nodes)
    bench.feed(*old_rows(0, 5))
    bench.readings.add_fields("wet bool null, room string null")
    bench.feed(*new_rows(5, 25))
    assert [(n, x) for n, x, *_ in run.answers()] == [(10, 45), (10, 145)]


@pytest.mark.parametrize("nodes", [HOT, DISTINCT], ids=["select", "distinct"])
def test_plans_of_before_and_after_are_not_shared(bench: Bench, nodes: dict[str, Any]) -> None:
    over = {**nodes, "out": {**nodes["out"]}, "top": {"op": "project", "input": "out", "compute": {"x": "x"}}}
    old = [run_plan(over, "top", [bench.readings], engine=bench.engine, id_=f"old{n}") for n in range(2)]
    bench.feed(*old_rows(0, 12))
    assert all(run.query.shared for run in old)
    bench.readings.add_fields("wet bool null, room string null")
    wet = {**over, "top": {"op": "project", "input": "out", "compute": {"x": "x", "wet": "wet"}}}
    new = [run_plan(wet, "top", [bench.readings], engine=bench.engine, id_=f"new{n}") for n in range(2)]
    bench.feed(*new_rows(12, 40))
    assert len(bench.engine.sharing.pipelines) == 2
    assert all(run.query.shared for run in (*old, *new))
    bench.readings.complete()
    bench.engine.run()
    first = 10 if nodes is HOT else 0
    for run in old:
        assert sorted(run.answers()) == [(n,) for n in range(first, 40)]
    for run in new:
        expected = [(n, None) for n in range(first, 12)] + [(n, wet) for _, n, wet, _ in new_rows(12, 40)]
        assert sorted(run.answers()) == expected


def test_a_snapshot_from_before_goes_on_behind_the_change(bench: Bench) -> None:
    run = bench.start("sums", HOT)
    bench.feed(*old_rows(0, 14))
    saved = bench.engine.snapshot("sums")
    bench.readings.add_fields("wet bool null, room string null")
    bench.feed(*new_rows(14, 20))
    assert [x for _, x in run.answers()] == list(range(10, 20))
    other = Engine(bench.clock, train=8)
    other.attach(bench.readings.name, bench.readings.reader)
    schema = Schema(bench.readings.schema.fields[:2])
    seen, bench.readings.schema = bench.readings.schema, schema
    again = run_plan(HOT, "out", [bench.readings], engine=other, id_="sums", saved=saved)
    bench.readings.schema = seen
    other.run()
    assert [x for _, x in again.answers()] == list(range(14, 20))
