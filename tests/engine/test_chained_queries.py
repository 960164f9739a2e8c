"""Queries that read each other in one engine, stepped by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import MakeStream
from tests.support.engine.chained_queries import ChainedQueries

from mavstream_server.testing import ManualClock, ScriptedStream

BELOW = {
    "in": {"op": "source", "stream": "readings"},
    "hot": {"op": "select", "input": "in", "where": "n > 0"},
}
ABOVE = {
    "in": {"op": "source", "query": "hot"},
    "out": {"op": "select", "input": "in", "where": "n > 1"},
}
SECOND = 1_000_000_000


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "n int")


@pytest.fixture
def chained(tmp_path: Path, clock: ManualClock, readings: ScriptedStream) -> Iterator[ChainedQueries]:
    made = ChainedQueries(tmp_path, clock, [readings])
    yield made
    made.close()


def test_latency_counts_from_the_arrival_in_the_stream(
    chained: ChainedQueries, clock: ManualClock, readings: ScriptedStream
) -> None:
    below = chained.start("hot", BELOW, "hot")
    above = chained.start("above", ABOVE, "out")
    readings.rows((1,), (2,), (3,))
    clock.advance(seconds=1)
    while not below.output.sink.offset:
        chained.engine.step()
    clock.advance(seconds=1)
    chained.engine.run()
    assert (below.output.latency.count, below.output.latency.maximum) == (3, SECOND)
    assert (above.output.latency.count, above.output.latency.maximum) == (2, 2 * SECOND)
