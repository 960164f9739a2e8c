"""Queries in an engine process: their answers, the events reported about them, and refused commands."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.running_server import PATIENCE
from tests.support.services.engine_link import HOT, ROOTS, Events, Readings, drive, results

from mavstream_protocol.classes import QueryClass
from mavstream_protocol.queries import OnError
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_server.engine.process.messages import StartQuery
from mavstream_server.log import FrameKind, LogReader
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.supervisor.engine_link import EngineLink, EngineRefused


@pytest.fixture
def readings(tmp_path: Path) -> Iterator[Readings]:
    with Readings(tmp_path) as made:
        yield made


def test_a_query_can_start_at_the_beginning_or_at_positions(tmp_path: Path, readings: Readings) -> None:
    readings.append(31, 32, 33)

    async def script(link: EngineLink, events: Events) -> None:
        await link.attach_stream("readings", readings.path)
        plan = readings.plan(HOT)
        await link.start_query(StartQuery("all", plan, earliest=True))
        await link.start_query(StartQuery("some", plan, positions={"readings": 2}))
        await events.until(lambda: len(results(tmp_path, "all")) == 3, "all rows")
        await events.until(lambda: results(tmp_path, "some") == [(0, 33)], "the last row")
        with pytest.raises(EngineRefused, match="expected a position from 0 to 3") as refused:
            await link.start_query(StartQuery("far", plan, positions={"readings": 9}))
        assert refused.value.code == "position_ahead"

    drive(tmp_path, script)


def test_a_failed_query_is_reported_once_and_the_others_continue(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink, events: Events) -> None:
        await link.attach_stream("readings")
        strict = RunOptions(on_error=OnError.FAIL)
        await link.start_query(StartQuery("roots", readings.plan(ROOTS), options=strict))
        await link.start_query(StartQuery("hot", readings.plan(HOT)))
        readings.append(25, -1)
        link.ring()
        await events.until(lambda: events.ended, "the failure")
        readings.append(30)
        link.ring()
        await events.until(lambda: len(results(tmp_path, "hot")) == 2, "the other query's results")
        [(id_, state, reason)] = events.ended
        assert (id_, state) == ("roots", "failed")
        assert "operator 'r' met a row that cannot be computed" in (reason or "")
        metrics = (await link.metrics()).queries["roots"]
        assert (metrics.state, metrics.reason, metrics.operators) == ("failed", reason, ())
        # A failed query can be started again under the same id, and be removed.
        await link.start_query(StartQuery("roots", readings.plan(ROOTS), options=strict, epoch=2))
        await link.forget_query("roots")
        await link.forget_query("roots")
        assert set((await link.metrics()).queries) == {"hot"}
        assert len(events.ended) == 1

    drive(tmp_path, script)


def test_the_end_of_a_query_is_reported_after_its_last_result(tmp_path: Path, readings: Readings) -> None:
    counted: list[int] = []

    class Counting(Events):
        def query_ended(self, id_: str, state: str, reason: str | None) -> None:
            counted.append(len(results(tmp_path, "q")))
            super().query_ended(id_, state, reason)

    async def script(link: EngineLink, events: Events) -> None:
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT)))
        readings.append(*range(1000))
        readings.writer.mark(FrameKind.COMPLETE, time.time_ns())
        link.ring()
        await events.until(lambda: events.ended, "the end of the query")
        assert (events.ended, counted) == ([("q", "finished", None)], [979])

    drive(tmp_path, script, Counting())


def test_a_damaged_stream_log_stops_no_query(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink, events: Events) -> None:
        for stream in (readings, doors):
            await link.attach_stream(stream.name)
            await link.start_query(StartQuery(f"hot-{stream.name}", stream.plan(HOT)))
        segment = next(readings.path.glob("*.segment"))
        readings.append(30)
        with segment.open("r+b") as file:
            # A commit word beyond the end of the data.
            file.seek(6 * 8)
            file.write((1 << 40).to_bytes(8, "little"))
        doors.append(40)
        link.ring()
        await events.until(lambda: results(tmp_path, "hot-doors") == [(0, 40)], "the other stream's query")
        assert readings.writer.restore_header() is not None
        readings.append(50)
        link.ring()
        await events.until(
            lambda: results(tmp_path, "hot-readings") == [(0, 30), (0, 50)], "the rows behind the damage"
        )
        assert events.ended == []
        assert link.restarts == 0

    with Readings(tmp_path, "doors") as doors:
        drive(tmp_path, script)


def test_metrics_report_the_work_of_a_query(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink, events: Events) -> None:
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT), "alarms", epoch=4))
        readings.append(*range(1000))
        link.ring()
        await events.until(lambda: len(results(tmp_path, "q")) == 979, "results")
        stats = await link.metrics()
        assert stats.engine.pid == link.pid
        assert stats.engine.slices >= 1
        assert stats.engine.busy_ns > 0
        query = stats.queries["q"]
        assert (query.class_name, query.state, query.epoch) == ("alarms", "running", 4)
        assert (query.rows_in, query.rows_out, query.offset) == (1000, 979, 979)
        assert query.positions == {"readings": 1000}
        assert (query.queued_bytes, query.backlog_bytes) == (0, 0)
        source, hot, output = query.operators
        assert (source.name, source.kind, source.tuples) == ("in", "source", 1000)
        assert (hot.operator, hot.tuples, round(hot.selectivity, 3)) == ("select", 1000, 0.979)
        assert (output.name, output.kind) == ("#output", "output")
        summary = query.latency.summary()
        assert summary["count"] == 979
        assert 0 < (summary["p50"] or 0) <= (summary["p99"] or 0) <= (summary["max"] or 0) < 1000 * PATIENCE
        assert query.latency.at_most([1e-9, PATIENCE]) == [0, 979]
        assert (await link.metrics(["nobody"])).queries == {}

    drive(tmp_path, script)


def test_needed_positions_are_reported_without_a_request(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink, events: Events) -> None:
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT)))
        assert link.needs["readings"].position == 0
        readings.append(*range(100))
        link.ring()
        await events.until(lambda: link.needs["readings"].position == 100, "positions")
        assert link.needs["readings"].query == "q"
        await link.pause_query("q")
        await events.until(lambda: "readings" not in link.needs, "a paused query holds nothing")

    drive(tmp_path, script)


def test_a_paused_query_misses_the_pause(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink, events: Events) -> None:
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT), paused=True))
        await link.start_query(StartQuery("witness", readings.plan(HOT)))
        readings.append(30)
        link.ring()
        await events.until(lambda: len(results(tmp_path, "witness")) == 1, "the witness")
        await link.resume_query("q")
        readings.append(40)
        link.ring()
        await events.until(lambda: results(tmp_path, "q") == [(0, 40)], "the row behind the pause")
        with pytest.raises(EngineRefused, match="is running and cannot become running") as refused:
            await link.resume_query("q")
        assert refused.value.code == "wrong_state"

    drive(tmp_path, script)


def test_classes_and_policies_change_while_queries_run(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink, events: Events) -> None:
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT)))
        await link.set_class(QueryClass(name="alarms", priority=9))
        await link.reclass("q", "alarms")
        await link.switch_policy(SchedulerSettings(policy="wrr"))
        readings.append(30)
        link.ring()
        await events.until(lambda: len(results(tmp_path, "q")) == 1, "a result under another policy")
        stats = await link.metrics()
        assert (stats.engine.policy, stats.queries["q"].class_name) == ("wrr", "alarms")
        with pytest.raises(EngineRefused, match="unknown policy 'best'; known are: ") as refused:
            await link.switch_policy(SchedulerSettings(policy="best"))
        assert refused.value.code == "invalid_policy"
        assert (await link.engine_metrics()).policy == "wrr"

    drive(tmp_path, script)


def test_invalid_commands_are_refused_with_a_reason(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink, events: Events) -> None:
        plan = readings.plan(HOT)

        async def refused(attempt: Coroutine[Any, Any, object]) -> tuple[str, str]:
            with pytest.raises(EngineRefused) as error:
                await attempt
            return error.value.code, error.value.detail

        code, detail = await refused(link.start_query(StartQuery("q", plan)))
        assert (code, "stream 'readings' is not attached" in detail) == ("unknown_object", True)
        code, _ = await refused(link.attach_stream("nothing"))
        assert code == "log_missing"
        await link.attach_stream("readings")
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", plan))
        code, detail = await refused(link.start_query(StartQuery("q", plan)))
        assert (code, "running already" in detail) == ("object_in_use", True)
        code, detail = await refused(link.detach_stream("readings"))
        assert (code, "is read by q" in detail) == ("object_in_use", True)
        await link.stop_query("q")
        code, _ = await refused(link.stop_query("q"))
        assert code == "wrong_state"
        code, _ = await refused(link.reclass("q", "alarms"))
        assert code == "wrong_state"
        code, _ = await refused(link.pause_query("unknown"))
        assert code == "unknown_object"
        await link.detach_stream("readings")
        code, _ = await refused(link.start_query(StartQuery("q", plan)))
        assert code == "unknown_object"

    drive(tmp_path, script)


def test_result_logs_are_bounded(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink, events: Events) -> None:
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT)))
        log = tmp_path / "results" / "q"

        def trimmed() -> bool:
            readings.append(*range(100, 3100))
            link.ring()
            reader = LogReader(log)
            return reader.end > 200_000 and reader.begin > 0

        await events.until(trimmed, "the oldest results to go")

    drive(tmp_path, script, result_bytes=2 << 20)
