"""Commands to a recovered query that still computes again what it had answered: they wait until it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.columns.column import Column
from mavstream_server.core.clock import OffsetClock
from mavstream_server.core.metrics import TargetMetricsReply
from mavstream_server.engine.checkpoints.store import CheckpointStore
from mavstream_server.engine.process.commands import HostedEngine
from mavstream_server.engine.process.messages import (
    AttachStream,
    Done,
    Failed,
    ForgetQuery,
    GetTargetMetrics,
    Hello,
    PauseQuery,
    Reply,
    ResumeQuery,
    SetStopTime,
    ShedRows,
    StartQuery,
    StopQuery,
)
from mavstream_server.log import LogDescription, LogWriter
from mavstream_server.log.read_batch import ReadBatch
from mavstream_server.log.reader import LogReader

SHAPE = StreamShape(Schema((Field("at", FieldType.TIMESTAMP), Field("n", FieldType.INT))), "at")
SELECT = {
    "root": "some",
    "nodes": {
        "in": {"op": "source", "stream": "numbers"},
        "some": {"op": "select", "input": "in", "where": "n >= 0"},
    },
}


class Crashing:
    """An engine whose process dies again and again, with one stream."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stream = folder / "streams" / "numbers"
        self._writer = LogWriter(self._stream, LogDescription(SHAPE.schema, SHAPE.event_time))
        self._rows = 0
        self.store = CheckpointStore(folder / "checkpoints")
        self._begin()

    def _begin(self) -> None:
        scheduler = SchedulerSettings(policy="rr")  # every operator has a queue
        self.hosted = HostedEngine(
            Hello(self._folder, scheduler, checkpoint_interval_ns=1), OffsetClock(), _ignore
        )
        self.obey(AttachStream("numbers", self._stream))

    def die(self) -> None:
        """Let the engine's process die without saving anything, and start another one."""
        self.hosted.close()
        self._begin()

    def start(self, id_: str = "q", **options: Any) -> list[Reply]:
        """Start a query: from its last checkpoint, if there is one."""
        stored = self.store.stored(id_)
        plan = infer(Plan.parse(SELECT), {"numbers": SHAPE})
        if stored:
            was_paused = stored[0].header.paused
            options = {"checkpoint": stored[0].number, "was_paused": was_paused, **options}
        return self.obey(StartQuery(id_, plan, "default", epoch=1, **options))

    def obey(self, command: Any) -> list[Reply]:
        """Execute a command; returns a list that its reply is added to."""
        replies: list[Reply] = []
        self.hosted.obey(command, replies.append)
        return replies

    def append(self, rows: int) -> None:
        numbers = np.arange(self._rows, self._rows + rows)
        self._rows += rows
        self._writer.append({"at": Column(numbers * 1000), "n": Column(numbers)}, rows, 1)

    def run(self) -> None:
        """Process all rows, and do what the engine does between slices."""
        self.hosted.engine.run()
        self.hosted.checkpointer.finish_round()
        self.hosted.keep_house(self.hosted.engine.clock.now())
        self.hosted.checkpointer.finish_round()

    def save(self) -> None:
        """Write a checkpoint of all queries."""
        checkpointer = self.hosted.checkpointer
        count = checkpointer.count
        while checkpointer.count == count:
            self.hosted.keep_house(self.hosted.engine.clock.now())
            checkpointer.finish_round()

    def answers(self, id_: str = "q") -> list[int]:
        """Return the numbers in the result log."""
        reader = LogReader(self._folder / "results" / id_, cache_bytes=0)
        cursor, found = reader.cursor(0), list[int]()
        while cursor.behind:
            read = ReadBatch(cursor.take(1 << 20))
            if read.rows:
                found += read.columns(("n",))["n"].values.tolist()
        reader.close()
        return found


def _ignore(query: object) -> None:
    """Take no notice of queries that have ended."""


@pytest.fixture
def replaying(tmp_path: Path) -> Crashing:
    """An engine with a recovered query: 100 of its answers are behind its checkpoint."""
    crashing = Crashing(tmp_path)
    crashing.start()
    crashing.append(50)
    crashing.run()
    crashing.save()
    crashing.append(100)
    crashing.hosted.engine.run()
    crashing.die()
    crashing.start()
    return crashing


@pytest.mark.parametrize("command", [ShedRows("q", 0.5), ShedRows("q", 0.0), SetStopTime("q", 1 << 60)])
def test_a_command_given_while_results_are_repeated_does_not_repeat_them(
    replaying: Crashing, command: Any
) -> None:
    replaying.obey(command)
    replaying.die()
    replaying.start()
    replaying.run()
    assert replaying.answers() == list(range(150))


def test_rows_that_were_answered_before_are_not_shed(replaying: Crashing) -> None:
    shedding = replaying.obey(ShedRows("q", 0.5))
    assert shedding == []
    replaying.run()
    assert shedding == [Done()]
    replaying.append(1000)
    replaying.run()
    answers, query = replaying.answers(), replaying.hosted.engine.query("q")
    assert answers[:150] == list(range(150))
    shed = query.network.sources[0].counters["shed"]
    assert 0 < shed == 1150 - len(answers) == 1150 - len(set(answers))


def test_targets_are_not_judged_while_results_are_repeated(replaying: Crashing) -> None:
    (before,) = replaying.obey(GetTargetMetrics(("q",)))
    assert before == Done(TargetMetricsReply({}))
    replaying.run()
    (after,) = replaying.obey(GetTargetMetrics(("q",)))
    assert isinstance(after, Done)
    assert isinstance(after.value, TargetMetricsReply)
    assert list(after.value.queries) == ["q"]


def test_commands_are_executed_in_the_order_in_which_they_were_given(replaying: Crashing) -> None:
    pausing, resuming = replaying.obey(PauseQuery("q")), replaying.obey(ResumeQuery("q"))
    assert pausing == resuming == []
    replaying.run()
    assert pausing == resuming == [Done()]
    replaying.append(10)
    replaying.run()
    assert replaying.answers() == list(range(160))


def test_a_pause_that_the_engine_had_not_recorded_follows_the_recovery(replaying: Crashing) -> None:
    replaying.die()
    assert len(replaying.start(paused=True)) == 1
    replaying.run()
    replaying.append(10)
    replaying.run()
    assert replaying.answers() == list(range(150))
    assert replaying.store.stored("q")[0].header.paused


def test_a_resumption_that_the_engine_had_not_recorded_follows_the_rows_in_flight(tmp_path: Path) -> None:
    crashing = Crashing(tmp_path)
    crashing.start()
    crashing.append(50)
    engine = crashing.hosted.engine
    while not any(
        len(queue) for node in engine.query("q").network.operators.values() for queue in node.inputs
    ):
        assert engine.step()
    crashing.obey(PauseQuery("q"))  # recorded with rows in a queue
    crashing.hosted.engine.run()
    crashing.die()
    crashing.start(paused=False)
    crashing.die()
    crashing.start(paused=False)
    crashing.run()
    crashing.append(10)
    crashing.run()
    crashing.die()
    crashing.start()
    crashing.run()
    answers = crashing.answers()
    assert len(answers) == len(set(answers))
    assert set(range(50, 60)) <= set(answers)


@pytest.mark.parametrize("ending", [StopQuery("q"), ForgetQuery("q")])
def test_a_command_that_waits_for_a_query_that_ends_is_refused(replaying: Crashing, ending: Any) -> None:
    shedding = replaying.obey(ShedRows("q", 0.5))
    replaying.obey(ending)
    replaying.run()
    (reply,) = shedding
    assert isinstance(reply, Failed)
