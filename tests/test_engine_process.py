"""The engine process: real processes, logs and signals, driven through the link of the API process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from mavstream_protocol.inference import infer
from mavstream_protocol.plan import Plan
from mavstream_protocol.queries import OnError
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_server.columns.column import Column
from mavstream_server.engine.channel import HEADER
from mavstream_server.engine.messages import Hello, StartQuery
from mavstream_server.instantiator import RunOptions
from mavstream_server.log import FrameKind, LogDescription, LogReader, LogWriter
from mavstream_server.service.engine_link import EngineLink, EngineRefused, EngineUnavailable
from mavstream_server.testing.streams import parse_fields

PATIENCE = 30.0
IN = {"in": {"op": "source", "stream": "readings"}}
HOT = {**IN, "hot": {"op": "select", "input": "in", "where": "temp > 20"}}
RATIO = {**IN, "r": {"op": "project", "input": "in", "compute": {"x": "sqrt(temp)"}}}


class Readings:
    """A stream log as the API process writes it."""

    def __init__(self, data: Path) -> None:
        self.schema: Schema = parse_fields("room string null, temp int")
        self.path = data / "streams" / "readings"
        self.writer = LogWriter(self.path, LogDescription(self.schema))

    def append(self, *temps: int) -> None:
        rooms = Column.from_list(self.schema.fields[0].type, [f"room {temp}" for temp in temps])
        columns = {"room": rooms, "temp": Column.from_list(self.schema.fields[1].type, list(temps))}
        self.writer.append(columns, len(temps), time.time_ns(), producer=1, sequence=1)

    def plan(self, nodes: dict[str, Any]) -> TypedPlan:
        shapes = {"readings": StreamShape(self.schema)}
        return infer(Plan.parse({"root": list(nodes)[-1], "nodes": nodes}), shapes)


@pytest.fixture
def readings(tmp_path: Path) -> Iterator[Readings]:
    made = Readings(tmp_path)
    yield made
    made.writer.close()


def results(data: Path, id_: str, column: str = "temp") -> list[tuple[int, object]]:
    """Return epoch and value of all answers in a result log."""
    try:
        reader = LogReader(data / "results" / id_)
    except Exception:
        return []
    cursor, found = reader.cursor(reader.begin), []
    while (step := cursor.next()) is not None:
        frame, _ = step
        field = next(f for f in reader.description.schema if f.name == column)
        found += [(frame.producer, value) for value in frame.column(column).to_list(field.type)]
    return found


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition that other processes bring about."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        await asyncio.sleep(0.002)


def drive(data: Path, script: Callable[[EngineLink], Awaitable[None]], **hello: Any) -> None:
    """Run a script with a link to an engine process of its own."""

    async def main() -> None:
        link = EngineLink(Hello(data, **hello))
        await link.start()
        try:
            await script(link)
        finally:
            await link.stop()

    asyncio.run(main())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended and that nobody has asked for yet is not alive.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_rows_become_results_in_another_process(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink) -> None:
        rung = asyncio.Event()
        link.on_results = rung.set
        assert link.ready
        assert link.pid not in (None, os.getpid())
        await link.attach_stream("readings")
        started = await link.start_query(StartQuery("q", readings.plan(HOT), epoch=3))
        assert (started.offset, started.positions) == (0, {"readings": 0})
        readings.append(10, 30, 40)
        link.ring()
        await asyncio.wait_for(rung.wait(), PATIENCE)
        await until(lambda: results(tmp_path, "q") == [(3, 30), (3, 40)], "results")

    drive(tmp_path, script)


def test_a_query_can_start_at_the_beginning_or_at_positions(tmp_path: Path, readings: Readings) -> None:
    readings.append(31, 32, 33)

    async def script(link: EngineLink) -> None:
        await link.attach_stream("readings", readings.path)
        plan = readings.plan(HOT)
        await link.start_query(StartQuery("all", plan, earliest=True))
        await link.start_query(StartQuery("some", plan, positions={"readings": 2}))
        await until(lambda: len(results(tmp_path, "all")) == 3, "all rows")
        await until(lambda: results(tmp_path, "some") == [(0, 33)], "the last row")
        with pytest.raises(EngineRefused, match="position 9 is not in the log") as refused:
            await link.start_query(StartQuery("far", plan, positions={"readings": 9}))
        assert refused.value.code == "position_ahead"

    drive(tmp_path, script)


def test_a_killed_engine_is_told_restarted_and_works_again(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink) -> None:
        died, back = asyncio.Event(), asyncio.Event()
        seen_while_dead: list[bool] = []

        def on_death() -> None:
            seen_while_dead.append(link.ready)
            died.set()

        link.on_death, link.on_restart = on_death, back.set
        await link.attach_stream("readings")
        await link.set_priority("alarms", 7)
        await link.switch_policy(SchedulerSettings(policy="wrr"))
        await link.start_query(StartQuery("q", readings.plan(HOT), epoch=1))
        readings.append(30)
        link.ring()
        await until(lambda: results(tmp_path, "q") == [(1, 30)], "the first result")
        first = link.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await asyncio.wait_for(died.wait(), PATIENCE)
        with pytest.raises(EngineUnavailable, match="not running"):
            await link.stats()
        await asyncio.wait_for(back.wait(), PATIENCE)
        assert seen_while_dead == [False]
        assert (link.ready, link.restarts) == (True, 1)
        assert link.pid != first
        # Streams and policy are known to the new process; queries are for their owner to start.
        totals = await link.totals()
        assert (totals.policy, totals.ids) == ("wrr", ())
        started = await link.start_query(StartQuery("q", readings.plan(HOT), epoch=2))
        assert started.offset == 1
        readings.append(50)
        link.ring()
        await until(lambda: results(tmp_path, "q") == [(1, 30), (2, 50)], "results of both epochs")

    drive(tmp_path, script)


def test_calls_under_way_fail_when_the_engine_dies(tmp_path: Path) -> None:
    async def script(link: EngineLink) -> None:
        pid = link.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        call = asyncio.create_task(link.totals())
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineUnavailable):
            await asyncio.wait_for(call, PATIENCE)

    drive(tmp_path, script)


PARENT = """
import asyncio, sys
from pathlib import Path
from mavstream_server.engine.messages import Hello
from mavstream_server.service.engine_link import EngineLink

async def main():
    link = EngineLink(Hello(Path(sys.argv[1])))
    await link.start()
    print(link.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_the_engine_goes_when_its_parent_is_gone(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        engine = int(parent.stdout.readline())
        assert alive(engine)
        os.kill(engine, signal.SIGTERM)
        os.kill(engine, signal.SIGINT)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(PATIENCE)
    asyncio.run(until(lambda: not alive(engine), "the engine's exit"))


def test_a_query_that_fails_is_told_once_and_the_others_go_on(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink) -> None:
        ended: list[tuple[str, str, str | None]] = []
        link.on_query_ended = lambda *news: ended.append(news)
        await link.attach_stream("readings")
        strict = RunOptions(on_error=OnError.FAIL)
        await link.start_query(StartQuery("roots", readings.plan(RATIO), options=strict))
        await link.start_query(StartQuery("hot", readings.plan(HOT)))
        readings.append(25, -1)
        link.ring()
        await until(lambda: ended, "the failure")
        readings.append(30)
        link.ring()
        await until(lambda: len(results(tmp_path, "hot")) == 2, "the other query's results")
        [(id_, state, reason)] = ended
        assert (id_, state) == ("roots", "failed")
        assert "operator 'r' met a row that cannot be computed" in (reason or "")
        figures = (await link.stats()).queries["roots"]
        assert (figures.state, figures.reason, figures.operators) == ("failed", reason, ())
        # What has failed can be started again under the same id, and be forgotten.
        await link.start_query(StartQuery("roots", readings.plan(RATIO), options=strict, epoch=2))
        await link.forget_query("roots")
        await link.forget_query("roots")
        assert set((await link.stats()).queries) == {"hot"}
        assert len(ended) == 1

    drive(tmp_path, script)


def test_a_query_that_finishes_is_told_behind_its_last_result(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink) -> None:
        ended: list[tuple[str, str, str | None, int]] = []
        link.on_query_ended = lambda *news: ended.append((*news, len(results(tmp_path, "q"))))
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT)))
        readings.append(*range(1000))
        readings.writer.mark(FrameKind.COMPLETE, time.time_ns())
        link.ring()
        await until(lambda: ended, "the end")
        assert ended == [("q", "finished", None, 979)]

    drive(tmp_path, script)


def test_a_stream_whose_files_vanish_fails_its_queries_only(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink) -> None:
        ended: list[str] = []
        link.on_query_ended = lambda id_, state, reason: ended.append(f"{id_} {state}")
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT)))
        segment = next(readings.path.glob("*.segment"))
        readings.append(30)
        with segment.open("r+b") as file:
            # A commit word that promises more than there is.
            file.seek(6 * 8)
            file.write((1 << 40).to_bytes(8, "little"))
        link.ring()
        await until(lambda: ended, "the failure")
        assert ended == ["q failed"]
        assert (await link.totals()).ids == ("q",)

    drive(tmp_path, script)


def test_figures_tell_what_a_query_does(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink) -> None:
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT), "alarms", epoch=4))
        readings.append(*range(1000))
        link.ring()
        await until(lambda: len(results(tmp_path, "q")) == 979, "results")
        stats = await link.stats()
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
        assert (await link.stats(["nobody"])).queries == {}

    drive(tmp_path, script)


def test_needed_positions_are_told_without_asking(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink) -> None:
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT)))
        assert link.needs["readings"].position == 0
        readings.append(*range(100))
        link.ring()
        await until(lambda: link.needs["readings"].position == 100, "positions")
        assert link.needs["readings"].query == "q"
        await link.pause_query("q")
        await until(lambda: "readings" not in link.needs, "a paused query holds nothing")

    drive(tmp_path, script)


def test_a_paused_query_misses_the_pause(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink) -> None:
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT), paused=True))
        await link.start_query(StartQuery("witness", readings.plan(HOT)))
        readings.append(30)
        link.ring()
        await until(lambda: len(results(tmp_path, "witness")) == 1, "the witness")
        await link.resume_query("q")
        readings.append(40)
        link.ring()
        await until(lambda: results(tmp_path, "q") == [(0, 40)], "the row behind the pause")
        with pytest.raises(EngineRefused, match="is running and cannot become running") as refused:
            await link.resume_query("q")
        assert refused.value.code == "wrong_state"

    drive(tmp_path, script)


def test_classes_and_policies_change_while_queries_run(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink) -> None:
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT)))
        await link.set_priority("alarms", 9)
        await link.reclass("q", "alarms")
        await link.switch_policy(SchedulerSettings(policy="wrr"))
        readings.append(30)
        link.ring()
        await until(lambda: len(results(tmp_path, "q")) == 1, "a result under another policy")
        stats = await link.stats()
        assert (stats.engine.policy, stats.queries["q"].class_name) == ("wrr", "alarms")
        with pytest.raises(EngineRefused, match="unknown policy 'best'; known are: ") as refused:
            await link.switch_policy(SchedulerSettings(policy="best"))
        assert refused.value.code == "invalid_policy"
        assert (await link.totals()).policy == "wrr"

    drive(tmp_path, script)


def test_what_cannot_be_done_is_refused_with_its_reason(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink) -> None:
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


def test_malformed_commands_are_answered(tmp_path: Path) -> None:
    async def script(link: EngineLink) -> None:
        assert link._process is not None
        caller = link._process._caller
        assert caller is not None
        for number, body in enumerate((b"no pickle", b"cnowhere\nNothing\n.", b""), 1 << 40):
            with pytest.raises(EngineRefused) as refused:
                await caller.exchange(number, HEADER.pack(len(body), number) + body, PATIENCE)
            assert refused.value.code == "malformed_message"
        with pytest.raises(EngineRefused, match="is not a command") as refused:
            await caller.call({"what": "nonsense"}, PATIENCE)
        assert refused.value.code == "wrong_command"
        assert (await link.totals()).pid == link.pid

    drive(tmp_path, script)


def test_an_engine_that_cannot_be_set_up_is_not_kept(tmp_path: Path) -> None:
    async def main() -> None:
        link = EngineLink(Hello(tmp_path, SchedulerSettings(policy="best")))
        with pytest.raises(EngineUnavailable, match="unknown policy 'best'"):
            await link.start()
        assert not link.ready

    asyncio.run(main())


def test_result_logs_are_bounded(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink) -> None:
        await link.attach_stream("readings")
        await link.start_query(StartQuery("q", readings.plan(HOT)))
        log = tmp_path / "results" / "q"

        def written() -> int:
            reader = LogReader(log)
            return reader.end

        def trimmed() -> bool:
            readings.append(*range(100, 3100))
            link.ring()
            return written() > 200_000 and LogReader(log).begin > 0

        await until(trimmed, "the oldest results to go")

    drive(tmp_path, script, result_bytes=2 << 20)
