"""The link to the engine process: starts it, sends it commands, restarts it when it has died or hangs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from mavstream_protocol.classes import QueryClass
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_protocol.schema import Schema
from mavstream_server.core.errors import storage_problem
from mavstream_server.core.machine import memory_kills
from mavstream_server.core.storage.damage import DamageReport
from mavstream_server.engine.process.doorbell import Doorbell
from mavstream_server.engine.process.events import (
    DamageFound,
    Event,
    Need,
    Positions,
    QueryDiverged,
    QueryEnded,
)
from mavstream_server.engine.process.messages import (
    AttachResults,
    AttachStream,
    Command,
    DetachStream,
    Hello,
    SetClass,
    SetClock,
    Started,
    StartQuery,
    SwitchPolicy,
    Value,
)
from mavstream_server.log.errors import LogError
from mavstream_server.log.format.description import LogDescription, ensure_description, load_description
from mavstream_server.supervisor.caller import EngineRefused, EngineUnavailable
from mavstream_server.supervisor.commands import EngineCommands
from mavstream_server.supervisor.crash import Crash, crash_of
from mavstream_server.supervisor.engine_child import EngineChild
from mavstream_server.supervisor.engine_process import EngineProcess

__all__ = ["EngineLink", "EngineRefused", "EngineUnavailable"]

_log = logging.getLogger(__name__)

_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.1, 5.0  # seconds between a death and the next start
_STOP_GRACE = 30.0  # s: last checkpoints are written first
_CLOCK_TOLERANCE = 100_000  # ns


class EngineListener(Protocol):
    """Handles the events of an engine process."""

    def query_ended(self, id_: str, state: str, reason: str | None) -> None:
        """Handle a query that ended by itself (`finished`, `failed`); all its results are in the log."""

    def engine_died(self, crash: Crash) -> None:
        """Handle the death of the process: its queries have stopped, `ready` is false."""

    def engine_restarted(self) -> None:
        """Handle a new process that is ready, in which queries should be started; not the first one."""

    def query_diverged(self, id_: str, rows: int) -> None:
        """Handle a recovered query that did not compute `rows` of its stored results again."""

    def results_appended(self) -> None:
        """Handle results that were appended since the last call."""

    def positions_changed(self, needs: Mapping[str, Need]) -> None:
        """Handle a change of the positions that the stream logs must retain."""


class NoListener:
    """A listener that ignores all events."""

    def query_ended(self, id_: str, state: str, reason: str | None) -> None:
        """Ignore it."""

    def engine_died(self, crash: Crash) -> None:
        """Ignore it."""

    def engine_restarted(self) -> None:
        """Ignore it."""

    def query_diverged(self, id_: str, rows: int) -> None:
        """Ignore it."""

    def results_appended(self) -> None:
        """Ignore it."""

    def positions_changed(self, needs: Mapping[str, Need]) -> None:
        """Ignore it."""


class EngineLink(EngineCommands):
    """One engine process, restarted when it dies or hangs.

    Streams, classes and the policy are sent again to a new process. Queries are not: the listener starts
    them, because each needs a new epoch. Every method raises EngineUnavailable while there is no process, and
    EngineRefused when the process rejects a command.
    """

    def __init__(
        self,
        hello: Hello,
        *,
        child: EngineChild | None = None,
        damage: DamageReport | None = None,
        start_timeout: float = 30.0,
        call_timeout: float = 30.0,
        hang_timeout: float = 30.0,
    ) -> None:
        """`child` is the first process, if it was started before; others are started when they are needed.

        `damage` collects the damage that the process finds. Timeouts are in seconds; a process that answers
        no probe for `hang_timeout` is killed.
        """
        self.damage = damage or DamageReport()
        self._hello = hello
        self._start_timeout = start_timeout
        self._call_timeout = call_timeout
        self._hang_timeout = hang_timeout
        self._streams: dict[str, Path] = {}
        self._clock_offset: int | None = None
        self._classes: dict[str, QueryClass] = {}
        self._child = child
        self._news = Doorbell.create() if child is None else child.news
        self._results = Doorbell.create() if child is None else child.results
        self._process: EngineProcess | None = None
        self._watcher: asyncio.Task[None] | None = None
        self.restarts = 0
        """How often the process was restarted."""
        self.tracing = asyncio.Lock()
        """Held from `start_trace` to `take_trace`: concurrent traces would get each other's slices."""
        self.needs: Mapping[str, Need] = {}
        """The positions that the stream logs must retain, as last reported by a process."""
        self._listener: EngineListener = NoListener()

    @property
    def ready(self) -> bool:
        """Whether commands can be sent now."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """The process id, or None while there is no process."""
        return None if self._process is None else self._process.pid

    def ring(self) -> None:
        """Notify the engine that stream logs have grown; takes about a microsecond, callable at any time."""
        self._news.ring()

    # Lifecycle

    async def start(self, listener: EngineListener | None = None) -> None:
        """Start the process and return when it is ready; raises EngineUnavailable if it does not start.

        `listener` gets the events of this process and of those that replace it.
        """
        self._listener = listener or self._listener
        asyncio.get_running_loop().add_reader(self._results.hear_fd, self._handle_results)
        try:
            await self._launch()
        except BaseException:
            await self.stop()
            raise
        self._watcher = asyncio.create_task(self._watch())

    async def stop(self, grace: float = _STOP_GRACE) -> None:
        """Stop the process, by force after the grace (s); stopping again does nothing."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait((self._watcher,))
            self._watcher = None
        process, self._process = self._process, None
        if process is not None:
            await process.stop(grace)
        if self._results.hear_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._results.hear_fd)
        self._news.close()
        self._results.close()

    async def _launch(self) -> EngineProcess:
        first: list[Command] = [
            self._hello,
            *([] if self._clock_offset is None else [SetClock(self._clock_offset)]),
            *(AttachStream(name, path) for name, path in self._streams.items()),
            *(SetClass(spec) for spec in self._classes.values()),
        ]
        child, self._child = self._child or EngineChild.start(self._news, self._results), None
        self._process = await EngineProcess.launch(child, self._handle_event, first, self._start_timeout)
        return self._process

    async def _watch(self) -> None:
        """Restart the process whenever it has died or hangs, until cancelled."""
        backoff, loop = _FIRST_BACKOFF, asyncio.get_running_loop()
        process = self._process
        while process is not None:
            begun, killed_before = loop.time(), memory_kills()
            hung = await process.lost(self._hang_timeout)
            self._process = None
            code = await process.end()
            out_of_memory = memory_kills() > killed_before
            crash = crash_of(process.record.read(), code, hung=hung, out_of_memory=out_of_memory)
            fields = {"code": code, "restarts": self.restarts, "queries": list(crash.queries)}
            _log.error("engine process %s", crash.how, extra={"fields": fields})
            _notify(self._listener.engine_died, crash)
            if loop.time() - begun > 2 * backoff:
                # It has done more work than the wait would cost, so this is no loop of crashes at the start.
                backoff = _FIRST_BACKOFF
            process = None
            while process is None:
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, _LONGEST_BACKOFF)
                try:
                    process = await self._launch()
                except (EngineUnavailable, OSError):
                    _log.exception("engine process did not start; the next attempt is in %g s", backoff)
            self.restarts += 1
            _notify(self._listener.engine_restarted)

    async def gone(self) -> None:
        """Wait until the process has died; return at once if there is none."""
        if self._process is not None:
            await self._process.gone()

    # Events

    def _handle_event(self, event: Event) -> None:
        match event:
            case QueryEnded(id_, state, reason):
                _notify(self._listener.query_ended, id_, state, reason)
            case QueryDiverged(id_, rows):
                _notify(self._listener.query_diverged, id_, rows)
            case DamageFound(damage):
                self.damage.add(damage)
            case Positions(needs):
                self.needs = needs
                _notify(self._listener.positions_changed, needs)

    def _handle_results(self) -> None:
        self._results.silence()
        _notify(self._listener.results_appended)

    # Commands

    async def call(self, command: Command, *, large: bool = False) -> Value:
        """Send any command and return the value of its reply."""
        if self._process is None:
            raise EngineUnavailable("the engine process is not running; it is being started, try again soon")
        return await self._process.call(command, self._call_timeout, large=large)

    async def attach_stream(self, name: str, path: Path | None = None) -> None:
        """Let queries read a stream's log, by default the one in the data directory; also after a restart."""
        path = path or self._hello.data / "streams" / name
        await self.call(AttachStream(name, path))
        self._streams[name] = path

    async def attach_results(self, command: AttachResults, schema: Schema) -> None:
        """Let queries read the results of another query; creates its result log if there is none."""
        await self._create_result_log(command.id, schema)
        await self.call(command)

    async def _create_result_log(self, id_: str, schema: Schema) -> None:
        log = self._hello.data / "results" / id_
        if not _has_description(log):
            # Created here because waiting for the disk in the engine would delay the other queries.
            await asyncio.to_thread(_create_result_log, log, LogDescription(schema))

    async def detach_stream(self, name: str) -> None:
        """Close a stream's log; rejected (`object_in_use`) while a query reads it."""
        await self.call(DetachStream(name))
        self._streams.pop(name, None)

    async def start_query(self, command: StartQuery, *, large: bool = False) -> Started:
        """Start a query and return the positions from which it reads; encode a large one in a thread."""
        await self._create_result_log(command.id, command.plan.schema)
        started = await self.call(command, large=large)
        assert isinstance(started, Started)
        # Until the engine reports positions again, the rows that the query starts with must be retained.
        for stream, position in started.positions.items():
            known = self.needs.get(stream)
            if known is None or position < known.position:
                furthest = position if known is None else known.furthest
                self.needs = {**self.needs, stream: Need(position, command.id, furthest)}
        return started

    async def set_class(self, spec: QueryClass) -> None:
        """Set the priority and the latency target of a class, also after a restart."""
        await self.call(SetClass(spec))
        self._classes[spec.name] = spec

    def forget_class(self, name: str) -> None:
        """Do not send a removed class to later engines; in the present one it has no queries."""
        self._classes.pop(name, None)

    async def set_clock(self, offset_ns: int) -> None:
        """Set the engine's clock: arrival time minus monotonic time, also after a restart.

        Differences that do not matter are not sent: an idle engine should not be woken for them.
        """
        if self._clock_offset is None or abs(offset_ns - self._clock_offset) >= _CLOCK_TOLERANCE:
            self._clock_offset = offset_ns
            await self.call(SetClock(offset_ns))

    async def switch_policy(self, chosen: SchedulerSettings) -> None:
        """Switch to another scheduling policy, also after a restart."""
        await self.call(SwitchPolicy(chosen))
        self._hello = replace(self._hello, scheduler=chosen)


def _has_description(log: Path) -> bool:
    """Return whether a result log exists; the engine checks whether it fits the query."""
    try:
        load_description(log)
    except (LogError, OSError):
        return False
    return True


def _create_result_log(log: Path, description: LogDescription) -> None:
    """Create the directory and the description of a result log, synced to disk."""
    try:
        log.mkdir(parents=True, exist_ok=True)
        ensure_description(log, description)
    except LogError as error:
        raise EngineRefused(str(error), code=error.code) from error
    except OSError as error:
        raise storage_problem(f"result log {log.name!r}", error) from error


def _notify(method: Callable[..., None], *event: object) -> None:
    """Call a method of the listener; its exceptions are logged and must not break the link."""
    try:
        method(*event)
    except Exception:
        _log.exception("the listener of the engine link failed")
