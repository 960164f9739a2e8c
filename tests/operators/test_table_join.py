"""Joins with stored tables, one behaviour at a time, in an engine that is stepped by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_protocol.errors import InvalidPlan
from mavstream_protocol.plans.inference import check_one_time, infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import OnError
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.engine.reporting import oldest_arrival
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.tables.index_file import LARGE
from mavstream_server.testing import ManualClock, ScriptedStream, ScriptedTable, run_plan
from mavstream_server.testing.streams import parse_fields

NODES: dict[str, Any] = {
    "in": {"op": "source", "stream": "readings"},
    "rooms": {"op": "table", "table": "rooms"},
}
JOIN = {"op": "join", "left": "in", "right": "rooms", "on": [["room", "room"]]}
MakeTable = Callable[..., ScriptedTable]


@pytest.fixture
def table(tmp_path: Path, clock: ManualClock) -> Iterator[MakeTable]:
    made: list[ScriptedTable] = []

    def make(name: str = "rooms", fields: str = "room string null, cap int") -> ScriptedTable:
        made.append(ScriptedTable(tmp_path / "tables", name, fields, clock))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "n int, room string null")


def nodes(**parts: Any) -> dict[str, Any]:
    return {**NODES, "j": {**JOIN, **parts}}


def test_a_left_join_keeps_unmatched_rows_in_order(readings: ScriptedStream, table: MakeTable) -> None:
    rooms = table()
    rooms.put(("attic", 1), ("attic", 2), (None, 3), ("hall", 4))
    readings.rows((1, "hall"), (2, None), (3, "attic"), (4, "cellar"), (5, "hall"))
    inner = run_plan(nodes(), "j", [readings], tables=[rooms]).rows()
    assert inner == [(1, "hall", 4), (3, "attic", 1), (3, "attic", 2), (5, "hall", 4)]
    left = run_plan(nodes(how="left"), "j", [readings], tables=[rooms])
    assert left.rows() == [*inner[:1], (2, None, None), *inner[1:3], (4, "cellar", None), inner[3]]
    assert [field.nullable for field in left.schema] == [False, True, True]


def test_the_condition_of_a_join_is_part_of_the_match(readings: ScriptedStream, table: MakeTable) -> None:
    rooms = table()
    rooms.put(("attic", 1), ("attic", 5), ("hall", 9))
    readings.rows((3, "attic"), (3, "hall"), (7, "attic"))
    found = run_plan(nodes(how="left", where="l.n > r.cap"), "j", [readings], tables=[rooms]).rows()
    assert found == [(3, "attic", 1), (3, "hall", None), (7, "attic", 1), (7, "attic", 5)]


def test_rows_join_the_version_of_their_arrival_however_late_they_are_processed(
    readings: ScriptedStream, table: MakeTable, clock: ManualClock
) -> None:
    rooms = table()
    readings.rows((0, "attic"))
    for version in (1, 2, 3):
        clock.advance(nanoseconds=10)
        rooms.put(("attic", version))
        readings.rows((version * 10, "attic"))  # in the same nanosecond
        clock.advance(nanoseconds=1)
        readings.rows((version * 10 + 1, "attic"))
    expected = [(0, None), (10, 1), (11, 1), (20, 2), (21, 2), (30, 3), (31, 3)]
    plan = nodes(how="left", compute={"n": "l.n", "cap": "r.cap"})
    run = run_plan(plan, "j", [readings], tables=[rooms])
    assert run.rows() == expected
    clock.advance(nanoseconds=1)
    rooms.put(("attic", 4))
    readings.rows((40, "attic"))
    assert run.rows() == [*expected, (40, 4)]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_one_batch_joins_more_versions_than_stay_loaded(
    readings: ScriptedStream, table: MakeTable, clock: ManualClock, how: str
) -> None:
    rooms = table()
    readings.rows((0, "attic"))
    for version in range(1, 13):
        clock.advance(nanoseconds=10)
        rooms.put(("attic", version))
        readings.rows((version, "attic"))
    run = run_plan(nodes(how=how), "j", [readings], tables=[rooms])
    before = [(0, "attic", None)] if how == "left" else []
    assert run.rows() == [*before, *((version, "attic", version) for version in range(1, 13))]


def test_rows_that_are_merged_by_time_keep_that_order_when_versions_alternate(
    stream: MakeStream, table: MakeTable, clock: ManualClock
) -> None:
    rooms = table()
    early, late = (stream(name, "ts timestamp, room string", event_time="ts") for name in ("early", "late"))
    plan = {
        "a": {"op": "source", "stream": "early"},
        "b": {"op": "source", "stream": "late"},
        "both": {"op": "union", "inputs": ["a", "b"], "order": "time"},
        "rooms": NODES["rooms"],
        "j": {**JOIN, "left": "both", "how": "left", "compute": {"ts": "l.ts", "cap": "r.cap"}},
    }
    for version, name in ((1, early), (2, late)):
        rooms.put(("attic", version), ("attic", version + 10))
        name.rows(*((ts, "attic") for ts in range(version, 9, 2)), (9, "cellar"))
        clock.advance(seconds=1)
        name.complete()
    found = run_plan(plan, "j", [early, late], tables=[rooms]).rows()
    assert found[:6] == [(1, 1), (1, 11), (2, 2), (2, 12), (3, 1), (3, 11)]
    assert found == sorted(found, key=lambda row: row[0])


def test_an_empty_table_can_be_joined(readings: ScriptedStream, table: MakeTable) -> None:
    rooms = table()
    rooms.put()
    readings.rows((1, "attic"))
    assert run_plan(nodes(), "j", [readings], tables=[rooms]).rows() == []
    assert run_plan(nodes(how="left"), "j", [readings], tables=[rooms]).rows() == [(1, "attic", None)]


def test_a_restored_snapshot_joins_the_versions_of_its_rows_arrival(
    readings: ScriptedStream, table: MakeTable, clock: ManualClock
) -> None:
    rooms = table()
    plan = {
        **nodes(how="left"),
        "out": {
            "op": "aggregate",
            "input": "j",
            "window": {"kind": "tumbling", "size": 3},
            "compute": {"n": "count(*)", "first": "first(n)", "cap": "sum(cap)"},
        },
    }
    for version in range(1, 9):
        clock.advance(nanoseconds=10)
        rooms.put(("attic", version), ("attic", 100))
        readings.rows(*((version * 10 + n, "attic") for n in range(7)))
    readings.complete()
    whole = run_plan(plan, "out", [readings], tables=[rooms], train=5).rows()
    assert len(whole) == 8 * 7 * 2 // 3
    run = run_plan(plan, "out", [readings], tables=[rooms], train=5)
    answers, moves = [], 0
    while True:
        run.engine.step()
        answers += run.answers()
        if not run.query.active:
            break
        saved, moves = run.engine.snapshot("q"), moves + 1
        run = run_plan(plan, "out", [readings], tables=[rooms], train=5, saved=saved)
    assert moves > 10
    assert answers == whole


def test_a_paused_query_joins_rows_after_the_pause(
    readings: ScriptedStream, table: MakeTable, clock: ManualClock
) -> None:
    rooms = table()
    rooms.put(("attic", 1))
    run = run_plan(nodes(), "j", [readings], tables=[rooms])
    readings.rows((1, "attic"))
    assert run.rows() == [(1, "attic", 1)]
    run.engine.pause("q")
    clock.advance(seconds=1)
    rooms.put(("attic", 2))
    readings.rows((2, "attic"))
    run.engine.run()
    run.engine.resume("q")
    readings.rows((3, "attic"))
    assert run.rows() == [(1, "attic", 1), (3, "attic", 2)]


def test_versions_in_use_count_as_memory_of_the_query_and_unmatched_keys_do_not(
    readings: ScriptedStream, table: MakeTable, clock: ManualClock
) -> None:
    rooms = table()
    rooms.put(*((f"room {number}", number) for number in range(10_000)))
    run = run_plan(nodes(), "j", [readings], tables=[rooms])
    assert run.query.memory.state == 0
    readings.rows((1, "room 7"), (2, "room 9999"))
    assert len(run.rows()) == 2
    large = run.query.memory.state
    assert large > 10_000 * 100
    for part in range(5):
        readings.rows(*((n, f"strange {part} {n}") for n in range(2000)))
        run.engine.run()
    assert run.query.memory.state < large + 10_000 * 16
    first = rooms.versions[0]
    clock.advance(seconds=1)
    rooms.put(("attic", 1))
    rooms.remove(first)
    readings.rows((3, "attic"))
    assert run.rows()[-1] == (3, "attic", 1)
    assert run.query.memory.state < large / 10


def test_rows_in_flight_hold_the_versions_that_they_need(
    readings: ScriptedStream, stream: MakeStream, table: MakeTable, clock: ManualClock
) -> None:
    rooms, others = table(), stream("others", "n int, room string null")
    rooms.put(("attic", 1))
    plan = {
        **nodes(left="both"),
        "other": {"op": "source", "stream": "others"},
        "both": {"op": "union", "inputs": ["in", "other"], "order": "time"},
    }
    run = run_plan(plan, "j", [readings, others], tables=[rooms])
    assert oldest_arrival(run.engine.queries.values()) is None
    arrival = clock.now()
    readings.rows((1, "attic"))
    clock.advance(seconds=1)
    rooms.put(("attic", 2))
    readings.rows((2, "attic"))
    assert run.rows() == []  # the other stream may still have an earlier row
    assert oldest_arrival(run.engine.queries.values()) == arrival
    clock.advance(seconds=1)
    others.rows((3, "attic"))
    readings.rows((4, "attic"))
    assert run.rows()[:2] == [(1, "attic", 1), (2, "attic", 2)]


def test_rows_that_cannot_be_computed_follow_on_error(readings: ScriptedStream, table: MakeTable) -> None:
    rooms = table(fields="room string, big int")
    rooms.put(("attic", 1 << 62), ("hall", 2))
    readings.rows((8, "attic"), (8, "hall"))
    plan = nodes(compute={"room": "l.room", "x": "l.n * r.big"})
    found = {
        mode: run_plan(plan, "j", [readings], tables=[rooms], options=RunOptions(mode)) for mode in OnError
    }
    assert found[OnError.NULL].rows() == [("attic", None), ("hall", 16)]
    assert found[OnError.SKIP].rows() == [("hall", 16)]
    assert found[OnError.SKIP].query.counters == {"j": {"errors": 1}}
    assert found[OnError.FAIL].rows() == []
    assert "operator 'j'" in str(found[OnError.FAIL].query.reason)


def test_a_query_with_a_broken_table_file_fails_with_a_reason(
    readings: ScriptedStream, table: MakeTable
) -> None:
    rooms = table()
    run = run_plan(nodes(), "j", [readings], tables=[rooms])
    version = rooms.put(("attic", 1))
    readings.rows((1, "attic"))
    version.within(rooms.path).write_bytes(b"something else")
    run.engine.run()
    assert (run.query.active, "expected a version of a table" in str(run.query.reason)) == (False, True)


SUM = {"op": "aggregate", "input": "in", "by": ["room"], "window": {"kind": "tumbling", "size": "1s"}}
SOURCE = {"op": "source", "stream": "readings"}
FAULTS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "unknown table": (
        {"rooms": {"op": "table", "table": "rom"}},
        "nodes/rooms/table",
        "unknown_table",
        "'rooms'?",
    ),
    "unknown key": ({"j": {**JOIN, "on": [["room", "rom"]]}}, "nodes/j/on/0/1", "unknown_field", "'room'?"),
    "key of another type": ({"j": {**JOIN, "on": [["n", "room"]]}}, "nodes/j/on/0", "type_mismatch", "int"),
    "no keys": ({"j": {**JOIN, "on": []}}, "nodes/j/on", "missing_keys", "needs keys"),
    "within": ({"j": {**JOIN, "within": "1s"}}, "nodes/j/within", "not_with_table", "no time"),
    "window": ({"j": {**JOIN, "window": SUM["window"]}}, "nodes/j/window", "not_with_table", "no time"),
    "order": ({"j": {**JOIN, "order": "time"}}, "nodes/j/order", "not_with_table", "keeps the order"),
    "unknown way": ({"j": {**JOIN, "how": "outer"}}, "nodes/j/how", "invalid_value", "'inner' or 'left'"),
    "column of neither": (
        {"j": {**JOIN, "compute": {"x": "r.n"}}},
        "nodes/j/compute/x",
        "unknown_field",
        "r.n",
    ),
    "equal columns": (
        {"j": {**JOIN, "on": [["n", "cap"]]}},
        "nodes/j/compute",
        "duplicate_column",
        "both sides have a column 'room'",
    ),
    "left of two streams": (
        {
            "again": SOURCE,
            "t": {**JOIN, "left": "again"},
            "j": {**JOIN, "right": "t", "how": "left", "within": "1s"},
        },
        "nodes/j/how",
        "table_required",
        "two streams",
    ),
    "table on the left": (
        {"j": {**JOIN, "left": "rooms", "right": "in"}},
        "nodes/j/left",
        "table_not_joined",
        "right",
    ),
    "table in a select": (
        {"s": {"op": "select", "input": "rooms", "where": "cap > 3"}, "j": {**JOIN, "right": "s"}},
        "nodes/s/input",
        "table_not_joined",
        "no rows flow",
    ),
    "above a window": (
        {"sum": {**SUM, "compute": {"c": "count(*)"}}, "j": {**JOIN, "left": "sum"}},
        "nodes/j/left",
        "table_above_window",
        "join the table below 'sum'",
    ),
    "first above an unordered join": (
        {
            "u": {"op": "union", "inputs": ["in", "in"]},
            "jj": {**JOIN, "left": "u"},
            "j": {**SUM, "input": "jj", "compute": {"x": "first(cap)"}},
        },
        "nodes/j/compute/x",
        "order_required",
        "'jj'",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_error_for_an_invalid_join_has_a_pointer(fault: str) -> None:
    changed, pointer, code, words = FAULTS[fault]
    with pytest.raises(InvalidPlan) as caught:
        typed(changed)
    items = [item for item in caught.value.items if item.pointer == pointer]
    assert [item.code for item in items] == [code], caught.value
    assert words in items[0].detail


def test_an_ordered_stream_stays_ordered_and_one_time_queries_can_join_tables() -> None:
    above = {**SUM, "input": "jj", "compute": {"x": "first(cap)"}, "window": {"kind": "tumbling", "size": 5}}
    plan = typed({"jj": JOIN, "j": above})
    check_one_time(plan)
    assert plan.tables == {"rooms"}
    assert plan.paths() == (("in", "jj", "j"),)


def typed(changed: dict[str, Any]) -> Any:
    plan = Plan.parse({"root": "j", "nodes": {**NODES, "j": JOIN, **changed}})
    streams = {"readings": StreamShape(parse_fields("n int, room string null"))}
    return infer(plan, streams, {"rooms": parse_fields("room string null, cap int")})


@pytest.mark.parametrize("indexed", [False, True])
def test_a_large_version_gives_the_same_answer_with_an_index_in_a_file(
    readings: ScriptedStream, table: MakeTable, clock: ManualClock, indexed: bool
) -> None:
    rooms = table("rooms", "room string null, label string null, cap int")
    rows = [(f"room {n // 2}", None if n % 3 else f"lÄbel {n}", n) for n in range(LARGE + 2)]
    versions = [rooms.put(*rows)]
    asked = range(0, LARGE, 97)
    readings.rows(*((n, f"room {n * 7}") for n in asked))
    clock.advance(seconds=1)
    versions.append(rooms.put(*reversed(rows)))
    readings.rows((-1, "room 3"), (-2, "cellar"), (-3, None))
    if indexed:
        for version in versions:
            rooms.index(version, "room")
    plan = nodes(how="left", compute={"n": "l.n", "label": "r.label", "cap": "r.cap"})
    run = run_plan(plan, "j", [readings], tables=[rooms])
    by_room: dict[str, list[Any]] = {}
    for room, label, cap in rows:
        by_room.setdefault(room, []).append((label, cap))
    expected = [(n, *pair) for n in asked for pair in by_room.get(f"room {n * 7}", [(None, None)])]
    assert run.rows() == [
        *expected,
        (-1, None, 7),
        (-1, "lÄbel 6", 6),
        (-2, None, None),
        (-3, None, None),
    ]
