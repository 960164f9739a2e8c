"""Commands to a query with much state: it waits until they are on disk, the others do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    ForgetQuery,
    Hello,
    PauseQuery,
    Reply,
    ResumeQuery,
    StartQuery,
)
from mavstream_server.log import LogDescription, LogWriter

SHAPE = StreamShape(Schema((Field("at", FieldType.TIMESTAMP), Field("n", FieldType.INT))), "at")
SOURCE = {"op": "source", "stream": "numbers"}
SELECT = {"root": "even", "nodes": {"in": SOURCE, "even": {"op": "select", "input": "in", "where": "n >= 0"}}}
JOIN = {
    "root": "pairs",
    "nodes": {
        "all": SOURCE,
        "in": SOURCE,
        "some": {"op": "select", "input": "in", "where": "n % 10000 = 0"},
        "pairs": {
            "op": "join",
            "left": "all",
            "right": "some",
            "on": [["n", "n"]],
            "within": "1h",
            "compute": {"n": "l.n"},
        },
    },
}
ROWS = 20_000


class Hosted:
    """An engine with a small and a large query that have read the first rows."""

    def __init__(self, folder: Path) -> None:
        path = folder / "streams" / "numbers"
        self._writer = LogWriter(path, LogDescription(SHAPE.schema, SHAPE.event_time))
        self._rows = 0
        self.engine = HostedEngine(Hello(folder, checkpoint_interval_ns=1 << 60), OffsetClock(), _ignore)
        self.obey(AttachStream("numbers", path))
        for name, plan in (("small", SELECT), ("large", JOIN)):
            typed = infer(Plan.parse(plan), {"numbers": SHAPE})
            assert self.obey(StartQuery(name, typed, "default")), f"{name} has no state to wait for"
        self.feed(ROWS)

    def feed(self, rows: int) -> None:
        """Append rows and process them."""
        numbers = np.arange(self._rows, self._rows + rows)
        self._rows += rows
        self._writer.append({"at": Column(numbers * 1000), "n": Column(numbers)}, rows, 1)
        self.engine.engine.run()

    def obey(self, command: Any) -> list[Reply]:
        """Execute a command; returns a list that its reply is added to."""
        replies: list[Reply] = []
        self.engine.obey(command, replies.append)
        return replies

    def rows_read(self, name: str) -> int:
        return self.engine.engine.queries[name].rows_in


def _ignore(query: object) -> None:
    """Take no notice of queries that have ended."""


@pytest.fixture
def hosted(tmp_path: Path) -> Hosted:
    return Hosted(tmp_path)


def test_a_query_with_much_state_waits_for_its_command_and_others_go_on(
    hosted: Hosted, tmp_path: Path
) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    pausing = hosted.obey(PauseQuery("large"))
    assert pausing == []
    hosted.feed(100)
    assert hosted.rows_read("small") == ROWS + 100
    hosted.engine.checkpointer.finish_round()
    assert pausing == [Done()]
    assert [each.header.paused for each in store.stored("large")] == [True]
    resuming = hosted.obey(ResumeQuery("large"))
    hosted.feed(50)
    assert (resuming, hosted.rows_read("large")) == ([], 2 * ROWS)
    hosted.engine.checkpointer.finish_round()
    hosted.feed(1)
    assert (resuming, hosted.rows_read("large")) == ([Done()], 2 * (ROWS + 51))
    assert [each.header.positions for each in store.stored("large")] == [{"numbers": ROWS + 100}]
    assert hosted.rows_read("small") == ROWS + 151


def test_little_state_is_on_disk_before_the_command_returns(hosted: Hosted, tmp_path: Path) -> None:
    assert hosted.obey(PauseQuery("small")) == [Done()]
    assert [each.header.paused for each in CheckpointStore(tmp_path / "checkpoints").stored("small")] == [
        True
    ]


def test_a_second_command_is_recorded_with_the_first(hosted: Hosted, tmp_path: Path) -> None:
    pausing, resuming = hosted.obey(PauseQuery("large")), hosted.obey(ResumeQuery("large"))
    hosted.engine.checkpointer.finish_round()
    assert (pausing, resuming) == ([Done()], [Done()])
    (stored,) = CheckpointStore(tmp_path / "checkpoints").stored("large")
    assert not stored.header.paused


def test_a_query_that_is_removed_meanwhile_leaves_no_checkpoint(hosted: Hosted, tmp_path: Path) -> None:
    pausing = hosted.obey(PauseQuery("large"))
    assert hosted.obey(ForgetQuery("large")) == [Done()]
    assert pausing == [Done()]
    hosted.engine.checkpointer.finish_round()
    assert not (tmp_path / "checkpoints" / "large").exists()


def test_an_orderly_stop_records_commands_that_are_being_written(hosted: Hosted, tmp_path: Path) -> None:
    pausing = hosted.obey(PauseQuery("large"))
    hosted.engine.save_all()
    assert pausing == [Done()]
    newest, *_ = CheckpointStore(tmp_path / "checkpoints").stored("large")
    assert newest.header.paused
