"""Consumer lag: how far queries are behind the ends of their streams."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.conftest import MakeStream

from mavstream_server.core.metrics import ConsumerLag
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.reporting import consumer_lags
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

SECOND = 1_000_000_000
JOINED = {
    "a": {"op": "source", "stream": "readings"},
    "b": {"op": "source", "stream": "readings"},
    "c": {"op": "source", "stream": "doors"},
    "out": {"op": "union", "inputs": ["a", "b", "c"]},
}
NONE = ConsumerLag(0, 0)


@pytest.fixture
def streams(stream: MakeStream) -> tuple[ScriptedStream, ScriptedStream]:
    return stream("readings", "x int"), stream("doors", "x int")


def started(streams: Sequence[ScriptedStream], clock: ManualClock) -> PlanRun:
    engine = Engine(clock)
    for stream in streams:
        engine.attach(stream.name, stream.reader)
    return run_plan(JOINED, "out", streams, engine=engine, earliest=True)


def test_lag_is_the_number_of_unread_rows_and_the_age_of_the_oldest(
    streams: tuple[ScriptedStream, ScriptedStream], clock: ManualClock
) -> None:
    readings, _ = streams
    run = started(streams, clock)
    readings.rows((1,), (2,))
    clock.advance(seconds=3)
    readings.rows((3,))
    assert consumer_lags(run.query, clock.now()) == {
        "readings": ConsumerLag(3, 3 * SECOND),
        "doors": NONE,
    }
    run.engine.run()
    assert consumer_lags(run.query, clock.now()) == {"readings": NONE, "doors": NONE}


def test_paused_queries_and_ended_sources_have_no_lag(
    streams: tuple[ScriptedStream, ScriptedStream], clock: ManualClock
) -> None:
    readings, doors = streams
    run = started(streams, clock)
    doors.complete()
    run.engine.run()
    assert consumer_lags(run.query, clock.now()) == {"readings": NONE}
    run.engine.pause(run.query.id)
    readings.rows((1,))
    assert consumer_lags(run.query, clock.now()) == {}
