"""The engine process: start, crash and restart, with real processes, logs and signals."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.servers.running_server import PATIENCE
from tests.support.services.engine_link import HOT, Events, Readings, drive, results

from mavstream_protocol.classes import QueryClass
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_server.engine.crash_record import record_file
from mavstream_server.engine.process.channel import HEADER
from mavstream_server.engine.process.doorbell import Doorbell
from mavstream_server.engine.process.messages import Hello, StartQuery
from mavstream_server.supervisor.caller import Caller
from mavstream_server.supervisor.engine_link import EngineLink, EngineRefused, EngineUnavailable


@pytest.fixture
def readings(tmp_path: Path) -> Iterator[Readings]:
    with Readings(tmp_path) as made:
        yield made


def test_rows_become_results_in_another_process(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink, events: Events) -> None:
        assert link.ready
        assert link.pid not in (None, os.getpid())
        await link.attach_stream("readings")
        started = await link.start_query(StartQuery("q", readings.plan(HOT), epoch=3))
        assert (started.offset, started.positions) == (0, {"readings": 0})
        readings.append(10, 30, 40)
        link.ring()
        await events.until(lambda: results(tmp_path, "q") == [(3, 30), (3, 40)], "results")

    drive(tmp_path, script)


def test_a_killed_engine_is_reported_restarted_and_works_again(tmp_path: Path, readings: Readings) -> None:
    async def script(link: EngineLink, events: Events) -> None:
        await link.attach_stream("readings")
        await link.set_class(QueryClass(name="alarms", priority=7))
        await link.switch_policy(SchedulerSettings(policy="wrr"))
        await link.start_query(StartQuery("q", readings.plan(HOT), epoch=1))
        readings.append(30)
        link.ring()
        await events.until(lambda: results(tmp_path, "q") == [(1, 30)], "the first result")
        first = link.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await events.until(lambda: events.died, "its death")
        assert not link.ready
        with pytest.raises(EngineUnavailable, match="not running"):
            await link.metrics()
        await events.until(lambda: events.restarted, "another engine")
        assert (link.ready, link.restarts) == (True, 1)
        assert link.pid != first
        # The new process knows streams and policy; the listener starts the queries.
        totals = await link.engine_metrics()
        assert (totals.policy, totals.ids) == ("wrr", ())
        started = await link.start_query(StartQuery("q", readings.plan(HOT), epoch=2))
        assert started.offset == 1
        readings.append(50)
        link.ring()
        await events.until(lambda: results(tmp_path, "q") == [(1, 30), (2, 50)], "results of both epochs")

    drive(tmp_path, script)


def test_pending_calls_fail_when_the_engine_dies(tmp_path: Path) -> None:
    async def script(link: EngineLink, events: Events) -> None:
        pid = link.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        call = asyncio.create_task(link.engine_metrics())
        assert not (await asyncio.wait((call,), timeout=0))[0]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineUnavailable):
            await asyncio.wait_for(call, PATIENCE)

    drive(tmp_path, script)


def test_a_hanging_engine_is_killed_and_replaced(
    tmp_path: Path, readings: Readings, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        link = EngineLink(Hello(tmp_path), hang_timeout=1.0)
        events = Events()
        await link.start(events)
        await link.attach_stream("readings")
        pid = link.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineUnavailable, match="died before it answered"):
            await link.engine_metrics()
        await events.until(lambda: events.restarted, "another engine")
        assert (link.restarts, link.pid != pid) == (1, True)
        started = await link.start_query(StartQuery("q", readings.plan(HOT)))
        assert started.positions == {"readings": 0}
        await link.stop()

    asyncio.run(main())
    assert "hung and was killed" in caplog.text


def test_a_hanging_engine_with_a_full_channel_is_killed(tmp_path: Path, readings: Readings) -> None:
    async def main() -> None:
        link = EngineLink(Hello(tmp_path), hang_timeout=1.0)
        events = Events()
        await link.start(events)
        await link.attach_stream("readings")
        pid = link.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        start = StartQuery("q", readings.plan(HOT), class_name="x" * (4 << 20))
        with pytest.raises(EngineUnavailable):
            await link.start_query(start)
        await events.until(lambda: events.restarted, "another engine")
        assert (await link.engine_metrics()).ids == ()
        await link.stop()

    asyncio.run(main())


def test_an_idle_engine_is_not_killed(tmp_path: Path) -> None:
    async def main() -> None:
        link = EngineLink(Hello(tmp_path), hang_timeout=1.0)
        events = Events()
        await link.start(events)
        with pytest.raises(TimeoutError):  # longer than twice the hang timeout
            await asyncio.wait_for(events.until(lambda: events.died, "a death"), 2.5)
        assert (events.died, link.restarts) == (0, 0)
        await link.stop()

    asyncio.run(main())


PARENT = """
import asyncio, sys
from pathlib import Path
from mavstream_server.engine.process.messages import Hello
from mavstream_server.supervisor.engine_link import EngineLink

async def main():
    link = EngineLink(Hello(Path(sys.argv[1])))
    await link.start()
    print(link.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_the_engine_exits_when_its_parent_dies(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        engine = int(parent.stdout.readline())
        ended = os.pidfd_open(engine)
        os.kill(engine, signal.SIGTERM)
        os.kill(engine, signal.SIGINT)
        assert not select.select([ended], [], [], 0)[0]
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(PATIENCE)
    assert select.select([ended], [], [], PATIENCE)[0], "the engine is still running"
    os.close(ended)


@contextmanager
def hosted() -> Iterator[socket.socket]:
    """Run an engine process as the link does, and yield our end of its channel."""
    ours, theirs = socket.socketpair()
    bell = Doorbell.create()
    command = [
        sys.executable,
        "-m",
        "mavstream_server.engine.process.host",
        "--control-fd",
        str(theirs.fileno()),
    ]
    record = record_file()
    command += ["--news-fd", str(bell.hear_fd), "--results-fd", str(bell.ring_fd), "--record-fd", str(record)]
    shared = theirs.fileno(), bell.hear_fd, bell.ring_fd, record
    with subprocess.Popen(command, pass_fds=shared) as process:
        os.close(record)
        theirs.close()
        bell.close()
        try:
            yield ours
        finally:
            ours.close()
            process.wait(PATIENCE)


def test_malformed_commands_get_an_error_reply(tmp_path: Path) -> None:
    async def script(connection: socket.socket) -> None:
        caller = await Caller.connect(connection, lambda event: None)
        for number, body in enumerate((b"no pickle", b"cnowhere\nNothing\n.", b""), 1 << 40):
            with pytest.raises(EngineRefused) as refused:
                await caller.exchange(number, HEADER.pack(len(body), number) + body, PATIENCE)
            assert refused.value.code == "malformed_message"
        with pytest.raises(EngineRefused, match="before Hello") as refused:
            await caller.call({"what": "nonsense"}, PATIENCE)
        assert refused.value.code == "wrong_command"
        assert await caller.call(Hello(tmp_path), PATIENCE) is None
        with pytest.raises(EngineRefused, match="is not a command") as refused:
            await caller.call({"what": "nonsense"}, PATIENCE)
        assert refused.value.code == "wrong_command"
        await caller.close()

    with hosted() as connection:
        asyncio.run(script(connection))


def test_an_engine_that_cannot_start_raises_an_error_and_is_not_ready(tmp_path: Path) -> None:
    async def main() -> None:
        link = EngineLink(Hello(tmp_path, SchedulerSettings(policy="best")))
        with pytest.raises(EngineUnavailable, match="unknown policy 'best'"):
            await link.start()
        assert not link.ready

    asyncio.run(main())
