"""What running queries still need of the versions of a table, through chains of queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.engine.chained_queries import ChainedQueries

from mavstream_server.engine.checkpoints.records import CheckpointRecords
from mavstream_server.engine.process.messages import TableNeed
from mavstream_server.engine.process.table_need import table_need
from mavstream_server.testing import ManualClock, ScriptedStream, ScriptedTable

HOT = {
    "in": {"op": "source", "stream": "readings"},
    "hot": {"op": "select", "input": "in", "where": "n > 0"},
}
IN_ORDER = {
    "in": {"op": "source", "stream": "readings"},
    "other": {"op": "source", "stream": "others"},
    "both": {"op": "union", "inputs": ["in", "other"], "order": "time"},
}


def passed_on(name: str) -> dict[str, Any]:
    return {
        "in": {"op": "source", "query": name},
        "out": {"op": "select", "input": "in", "where": "n > 1"},
    }


def looked_up(name: str) -> dict[str, Any]:
    return {
        "in": {"op": "source", "query": name},
        "rooms": {"op": "table", "table": "rooms"},
        "j": {
            "op": "join",
            "left": "in",
            "right": "rooms",
            "on": [["room", "room"]],
            "compute": {"cap": "r.cap"},
        },
    }


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "n int, room string")


@pytest.fixture
def others(stream: MakeStream) -> ScriptedStream:
    return stream("others", "n int, room string")


@pytest.fixture
def rooms(tmp_path: Path, clock: ManualClock) -> Iterator[ScriptedTable]:
    rooms = ScriptedTable(tmp_path / "tables", "rooms", "room string, cap int", clock)
    rooms.put(("attic", 1))
    yield rooms
    rooms.close()


@pytest.fixture
def chained(
    tmp_path: Path,
    clock: ManualClock,
    readings: ScriptedStream,
    others: ScriptedStream,
    rooms: ScriptedTable,
) -> Iterator[ChainedQueries]:
    made = ChainedQueries(tmp_path, clock, [readings, others], [rooms])
    yield made
    made.close()


def need(chained: ChainedQueries, table: str = "rooms") -> TableNeed:
    return table_need(chained.engine, CheckpointRecords(), table)


def test_results_hold_versions_until_the_join_has_read_them(
    chained: ChainedQueries, readings: ScriptedStream
) -> None:
    hot = chained.start("hot", HOT, "hot")
    joined = chained.start("joined", looked_up("hot"), "j")
    assert need(chained) == TableNeed(None, {})
    readings.rows((1, "attic"), (2, "attic"))
    while not hot.output.sink.offset:
        chained.engine.step()
    assert need(chained).unread == {hot.id: 0}
    assert need(chained, "homes") == TableNeed(None, {})
    chained.engine.run()
    assert need(chained) == TableNeed(None, {})
    assert joined.output.sink.offset == 2


def test_results_on_their_way_to_the_join_hold_versions_through_all_queries_between(
    chained: ChainedQueries, readings: ScriptedStream
) -> None:
    hot = chained.start("hot", HOT, "hot")
    passed = chained.start("passed", passed_on("hot"), "out")
    chained.start("joined", looked_up("passed"), "j")
    readings.rows((1, "attic"), (2, "attic"))
    while not hot.output.sink.offset:
        chained.engine.step()
    assert need(chained).unread == {hot.id: 0}
    while not passed.output.sink.offset:
        chained.engine.step()
    assert need(chained).unread == {passed.id: 0}


def test_rows_inside_of_the_query_below_the_join_hold_versions(
    chained: ChainedQueries, clock: ManualClock, readings: ScriptedStream, others: ScriptedStream
) -> None:
    chained.start("both", IN_ORDER, "both")
    joined = chained.start("joined", looked_up("both"), "j")
    arrived = clock.now()
    readings.rows((1, "attic"))
    chained.engine.run()  # the other stream may still have an earlier row
    clock.advance(seconds=1)
    assert need(chained) == TableNeed(arrived, {})
    others.rows((2, "attic"))
    readings.rows((3, "attic"))
    chained.engine.run()
    assert joined.output.sink.offset
    assert need(chained).arrival != arrived


def test_a_query_that_is_still_to_be_started_holds_versions_for_the_results_it_will_read(
    chained: ChainedQueries, readings: ScriptedStream
) -> None:
    hot = chained.start("hot", HOT, "hot")
    readings.rows((1, "attic"), (2, "attic"), (3, "attic"))
    chained.engine.run()
    chained.engine.chains.expect(hot.id, "joined-1", 2)
    assert need(chained).unread == {hot.id: 2}
    chained.engine.chains.arrived("joined-1")
    assert need(chained).unread == {}


def test_a_paused_query_holds_no_versions_for_results(
    chained: ChainedQueries, readings: ScriptedStream
) -> None:
    hot = chained.start("hot", HOT, "hot")
    joined = chained.start("joined", looked_up("hot"), "j")
    chained.engine.pause(joined.id)
    readings.rows((1, "attic"), (2, "attic"))
    chained.engine.run()
    assert hot.output.sink.offset == 2
    assert need(chained) == TableNeed(None, {})
