"""Queries that end, and whose end is not recorded because a process dies just then."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.services.engine_link import HOT, Events, Readings, drive, results

from mavstream_server.engine.checkpoints.store import CheckpointStore
from mavstream_server.engine.process.messages import StartQuery
from mavstream_server.log.format.layout import FrameKind
from mavstream_server.supervisor.engine_link import EngineLink


def test_a_query_that_has_ended_can_end_once_more_without_repeating_answers(tmp_path: Path) -> None:
    with Readings(tmp_path) as readings:

        async def script(link: EngineLink, events: Events) -> None:
            await link.attach_stream("readings")
            await link.start_query(StartQuery("q", readings.plan(HOT), epoch=1))
            readings.append(10, 30, 40)
            readings.writer.mark(FrameKind.COMPLETE, readings.writer.last_arrival)
            link.ring()
            await events.until(lambda: events.ended, "its end")
            assert link.pid is not None
            os.kill(link.pid, signal.SIGKILL)
            await events.until(lambda: events.restarted, "another engine")
            number = CheckpointStore(tmp_path / "checkpoints").stored("q")[0].number
            await link.start_query(StartQuery("q", readings.plan(HOT), epoch=1, checkpoint=number))
            await events.until(lambda: len(events.ended) == 2, "its end again")
            assert events.ended == 2 * [("q", "finished", None)]
            assert results(tmp_path, "q") == [(1, 30), (1, 40)]

        drive(tmp_path, script, checkpoint_interval_ns=3_600_000_000_000)
