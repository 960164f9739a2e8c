"""The engine process: runs an engine, executes commands of the API process, and sends events to it.

The API process starts it with `python -m mavstream_server.engine.process.host`; it exits when that exits.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import select
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from mavstream_protocol.errors import MavstreamError
from mavstream_server.core.clock import OffsetClock
from mavstream_server.core.heap import QueryHeap, freeze_heap
from mavstream_server.core.storage import failpoints
from mavstream_server.core.storage.damage import Damage
from mavstream_server.core.storage.data_directory import PRIVATE
from mavstream_server.engine.crash_record import CrashRecord
from mavstream_server.engine.process.allocator import keep_freed_memory
from mavstream_server.engine.process.channel import EVENT, EngineEnd, MalformedMessage, Packet
from mavstream_server.engine.process.commands import HostedEngine, WrongCommand
from mavstream_server.engine.process.doorbell import Doorbell
from mavstream_server.engine.process.events import (
    DamageFound,
    Need,
    Positions,
    QueryDiverged,
    QueryEnded,
    Ready,
)
from mavstream_server.engine.process.log_lines import log_to_stderr
from mavstream_server.engine.process.messages import Done, Failed, Hello, Reply, SetClock, Shutdown
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.states import QueryState

_log = logging.getLogger(__name__)

_WORK = 1_000_000  # ns of work between two polls of the channel
_COMMANDS = 2_000_000  # ns of commands before work continues
_RING_EVERY = 500_000  # ns between two rings while results are appended
_REPORT_EVERY = 500_000_000  # ns between two reports of positions
_SHORT_WAIT, _LONG_WAIT = 200, 1000  # ms to poll while idle; the short one while something is due by time
_RECOVERY_WAIT = 20  # ms to poll while the end of recoveries is to be timed
_RECORDING_WAIT = 10  # ms to poll while a reply waits for the disk


class Host:
    """The main loop of an engine process. It blocks only when there is nothing to do."""

    def __init__(
        self,
        control: EngineEnd,
        news: Doorbell,
        results: Doorbell,
        clock: OffsetClock,
        record: CrashRecord,
    ) -> None:
        """`record` notes what runs, for the process that watches this one."""
        self._record = record
        self._control = control
        self._news = news
        self._results = results
        self._clock = clock
        self._heap = QueryHeap()
        self._hosted: HostedEngine | None = None
        self._over = False
        self._rung = self._reported = 0
        self._reported_at = -1
        self._needs: dict[str, Need] = {}
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._poll.register(news.hear_fd, select.POLLIN)
        self._watching_room = False

    def run(self) -> None:
        """Work until a Shutdown command, or until the other side has closed the channel."""
        self._control.send(EVENT, Ready(os.getpid()))
        try:
            while not self._over:
                busy = self._hosted is not None and self._work(self._hosted)
                self._listen(0 if busy or self._control.received else self._wait_ms())
                self._execute_commands()
                self._over = self._over or self._control.closed
        finally:
            if self._hosted is not None:
                self._hosted.close()

    # Work

    def _work(self, hosted: HostedEngine) -> bool:
        """Step the engine for up to a millisecond; returns whether there is more to do."""
        monotonic, logs, step = self._clock.monotonic, hosted.logs, hosted.engine.step
        begin = now = monotonic()
        busy = True
        while busy and now - begin < _WORK:
            try:
                busy = step()
            except Exception as error:
                hosted.recover(error)
                busy = False  # an error that recurs at once must not keep the process busy
            now = monotonic()
            if logs.written and now - self._rung >= _RING_EVERY:
                self._ring(hosted, now)
        if logs.written and not busy:
            self._ring(hosted, now)
        hosted.keep_house(self._clock.now())
        self._heap.tend(len(hosted.engine.queries), now)
        if now - self._reported >= _REPORT_EVERY:
            self._report_positions(hosted, now)
        return busy

    def _ring(self, hosted: HostedEngine, now: int) -> None:
        hosted.logs.written = False
        self._rung = now
        self._results.ring()

    def _ended(self, query: RunningQuery) -> None:
        """Send QueryEnded after the last results of a query; one that was stopped gets a reply instead."""
        self._reported_at = -1
        if query.state is QueryState.STOPPED:
            return
        self._results.ring()
        self._control.send(EVENT, QueryEnded(query.id, query.state.value, query.reason))

    def _damaged(self, damage: Damage) -> None:
        self._control.send(EVENT, DamageFound(damage))

    def _diverged(self, query: RunningQuery, rows: int) -> None:
        self._control.send(EVENT, QueryDiverged(query.id, rows))

    def _report_positions(self, hosted: HostedEngine, now: int) -> None:
        """Send the positions that streams must retain, if they changed and the channel has room."""
        if self._reported_at == hosted.progress or self._control.backed_up:
            return
        self._reported, self._reported_at = now, hosted.progress
        needs = hosted.needs()
        if needs != self._needs:
            self._needs = needs
            self._control.send(EVENT, Positions(needs))

    # Listening

    def _wait_ms(self) -> int:
        hosted = self._hosted
        if hosted is None:
            return _LONG_WAIT
        due = (
            hosted.engine.timed
            or self._reported_at != hosted.progress
            or not hosted.logs.settled
            or hosted.checkpointer.busy
        )
        wait, rest_ends = _SHORT_WAIT if due else _LONG_WAIT, hosted.engine.due
        if hosted.recoveries.unfinished:
            wait = _RECOVERY_WAIT
        if rest_ends is not None:
            wait = min(wait, max((rest_ends - self._clock.now()) // 1_000_000 + 1, 1))
        if hosted.replies_soon:
            wait = min(wait, _RECORDING_WAIT)
        return wait

    def _listen(self, wait_ms: int) -> None:
        if self._control.backed_up is not self._watching_room:
            self._watching_room = self._control.backed_up
            room = select.POLLOUT if self._watching_room else 0
            self._poll.modify(self._control.fileno(), select.POLLIN | room)
        for fd, events in self._poll.poll(wait_ms):
            if fd == self._news.hear_fd:
                self._news.silence()
                continue
            if events & select.POLLOUT:
                self._control.flush()
            if events & ~select.POLLOUT:
                self._receive()

    def _receive(self) -> None:
        try:
            self._control.receive()
        except MalformedMessage:
            _log.exception("the control channel is broken")
            self._over = True

    def _execute_commands(self) -> None:
        """Execute received commands, for a bounded time so that they do not delay the engine."""
        received, begin = self._control.received, self._clock.monotonic()
        while received and not self._over and self._clock.monotonic() - begin < _COMMANDS:
            packet = received.popleft()
            self._execute(packet, partial(self._reply, packet.number))

    def _reply(self, number: int, reply: Reply) -> None:
        try:
            self._control.send(number, reply)
        except MalformedMessage as error:
            self._control.send(number, Failed(error.code, str(error)))

    def _execute(self, packet: Packet, reply: Callable[[Reply], None]) -> None:
        try:
            command = packet.message()
            if isinstance(command, Shutdown):
                if self._hosted is not None:
                    self._hosted.save_all()
                self._over = True
            elif isinstance(command, Hello):
                self._start(command)
            elif self._hosted is None:
                raise WrongCommand(f"got a {type(command).__name__} before Hello; send Hello first")
            elif isinstance(command, SetClock):
                self._clock.offset = command.offset_ns
            else:
                self._reported_at = -1
                self._hosted.obey(command, reply)
                return
        except MavstreamError as error:
            reply(Failed(error.code, str(error)))
        else:
            reply(Done())

    def _start(self, hello: Hello) -> None:
        if self._hosted is not None:
            raise WrongCommand("got a second Hello; it is sent once, at the start")
        self._hosted = HostedEngine(
            hello,
            self._clock,
            self._ended,
            self._damaged,
            diverged=self._diverged,
            patient=True,
            record=self._record,
        )
        _log.info(
            "engine ready", extra={"fields": {"data": str(hello.data), "policy": hello.scheduler.policy}}
        )


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The file descriptors that the parent process has passed."""

    control: int
    news: int
    results: int
    record: int


def parse_arguments(arguments: list[str] | None = None) -> Descriptors:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--control-fd", type=int, required=True, help="the engine's end of a socket pair")
    parser.add_argument("--news-fd", type=int, required=True, help="doorbell: streams have news")
    parser.add_argument("--results-fd", type=int, required=True, help="doorbell: results have news")
    parser.add_argument("--record-fd", type=int, required=True, help="shared memory: what runs at present")
    parsed = parser.parse_args(arguments)
    return Descriptors(parsed.control_fd, parsed.news_fd, parsed.results_fd, parsed.record_fd)


def main(arguments: list[str] | None = None) -> None:
    """Run an engine process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when this ends
    os.umask(PRIVATE)
    log_to_stderr()
    failpoints.arm_from_environment("engine")
    _raise_file_limit()
    keep_freed_memory()
    # numpy loads this when it is first needed (`unique`), which takes 40 ms: better now than in a slice.
    import_module("numpy.ma")
    # Objects so far are permanent: collections then consider those of queries only.
    freeze_heap()
    fds = parse_arguments(arguments)
    for fd in (fds.control, fds.news, fds.results, fds.record):
        os.set_inheritable(fd, False)
    control = EngineEnd(socket.socket(fileno=fds.control))
    news, results = Doorbell(fds.news, fds.news), Doorbell(fds.results, fds.results)
    record = CrashRecord.on(fds.record)
    os.close(fds.record)
    Host(control, news, results, OffsetClock(), record).run()
    control.flush()


def _raise_file_limit() -> None:
    # A result log takes three descriptors, so thousands of queries need more than the usual 1,024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
