"""Checkpoints of queries in the middle of work whose results would not fit into memory."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.columns.column import Column
from mavstream_server.core.clock import OffsetClock
from mavstream_server.engine.checkpoints.store import CheckpointStore
from mavstream_server.engine.process.commands import HostedEngine
from mavstream_server.engine.process.messages import (
    AttachStream,
    Done,
    Hello,
    PauseQuery,
    Reply,
    StartQuery,
)
from mavstream_server.log import LogDescription, LogWriter

SHAPE = StreamShape(Schema((Field("at", FieldType.TIMESTAMP), Field("n", FieldType.INT))), "at")
PAIRS = {
    "root": "pairs",
    "nodes": {
        "a": {"op": "source", "stream": "numbers"},
        "b": {"op": "source", "stream": "numbers"},
        "pairs": {
            "op": "join",
            "left": "a",
            "right": "b",
            "on": [["n", "n"]],
            "within": "1h",
            "compute": {"n": "l.n"},
        },
    },
}
ROWS = 1000


class Busy:
    """An engine amid a join of rows that all match each other."""

    def __init__(self, folder: Path) -> None:
        path = folder / "streams" / "numbers"
        writer = LogWriter(path, LogDescription(SHAPE.schema, SHAPE.event_time))
        self.hosted = HostedEngine(Hello(folder, checkpoint_interval_ns=1), OffsetClock(), _ignore)
        self.replies: list[Reply] = []
        self.hosted.obey(AttachStream("numbers", path), self.replies.append)
        typed = infer(Plan.parse(PAIRS), {"numbers": SHAPE})
        self.hosted.obey(StartQuery("q", typed, "default"), self.replies.append)
        writer.append({"at": Column(np.arange(ROWS)), "n": Column(np.zeros(ROWS, np.int64))}, ROWS, 1)
        self.engine, self.checkpointer = self.hosted.engine, self.hosted.checkpointer
        self.query = self.engine.query("q")
        while not self.query.has_unfinished_work:
            assert self.engine.step()
        self.store = CheckpointStore(folder / "checkpoints")

    def write_round(self) -> None:
        self.tend()
        self.checkpointer.finish_round()

    def tend(self) -> None:
        """Tend the checkpoints as if some seconds had passed."""
        self.checkpointer.tend(time.monotonic_ns() + 3_000_000_000)

    @property
    def positions(self) -> list[int]:
        return [each.header.positions["numbers"] for each in self.store.stored("q")]


def _ignore(query: object) -> None:
    """Take no notice of queries that have ended."""


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Busy:
    monkeypatch.setattr("mavstream_server.operators.joins.sorted_run.PAIRS_AT_ONCE", 64)
    monkeypatch.setattr("mavstream_server.operators.joins.recent_rows._MOST_COMPARISONS", 100)
    monkeypatch.setattr("mavstream_server.operators.joins.interval_join._LARGE_ANSWER", 16)
    monkeypatch.setattr("mavstream_server.engine.task.STEP_NS", 0)
    monkeypatch.setattr("mavstream_server.engine.checkpoints.checkpointer._MOST_EMITTED", 10_000)
    return Busy(tmp_path)


def test_a_checkpoint_is_postponed_until_little_work_is_left(busy: Busy) -> None:
    before = busy.positions
    busy.write_round()
    record = busy.checkpointer.records["q"]
    assert busy.positions == before
    assert record.error is not None
    assert "operator 'pairs' of query 'q' has work under way that emits more than 10000 bytes" in record.error
    busy.engine.run()
    busy.write_round()
    assert (busy.positions[0], record.error) == (ROWS, None)


def test_a_command_is_recorded_as_soon_as_little_work_is_left(busy: Busy) -> None:
    replies: list[Reply] = []
    busy.hosted.obey(PauseQuery("q"), replies.append)
    busy.tend()
    while busy.checkpointer.busy:
        busy.tend()
    assert replies == []
    assert busy.query.has_unfinished_work
    busy.engine.run()
    assert busy.query.output.sink.offset == ROWS * ROWS
    while not replies:
        busy.tend()
    assert replies == [Done()]
    assert [each.header.paused for each in busy.store.stored("q")] == [True]


def test_an_orderly_stop_retains_the_checkpoint_before(busy: Busy) -> None:
    before = busy.positions
    busy.checkpointer.write_all()
    assert busy.positions == before
