"""The link to the engine process: starts it, talks to it, starts it again when it has died or hangs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_server.engine.process.doorbell import Doorbell
from mavstream_server.engine.process.messages import (
    AttachStream,
    Command,
    DetachStream,
    Event,
    Hello,
    Need,
    Positions,
    QueryEnded,
    SetPriority,
    Started,
    StartQuery,
    SwitchPolicy,
    Value,
)
from mavstream_server.log.format.description import LogDescription
from mavstream_server.supervisor.caller import EngineRefused, EngineUnavailable
from mavstream_server.supervisor.commands import EngineCommands
from mavstream_server.supervisor.engine_process import EngineProcess
from mavstream_server.supervisor.result_files import describe_log, is_described

__all__ = ["EngineLink", "EngineRefused", "EngineUnavailable"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between a death and the next start


class EngineListener(Protocol):
    """Notified of what happens in an engine process."""

    def query_ended(self, id_: str, state: str, reason: str | None) -> None:
        """Handle a query that ended by itself (`finished`, `failed`); all its answers are in the log."""

    def engine_died(self) -> None:
        """Handle the death of the process: its queries run no more, `ready` is false."""

    def engine_restarted(self) -> None:
        """Handle a new process that is ready, in which queries should be started; not the first one."""

    def results_appended(self) -> None:
        """Handle results that were appended since the last call."""

    def positions_changed(self, needs: Mapping[str, Need]) -> None:
        """Handle a change of the positions that the stream logs must keep."""


class NoListener:
    """A listener that ignores all events."""

    def query_ended(self, id_: str, state: str, reason: str | None) -> None:
        """Ignore it."""

    def engine_died(self) -> None:
        """Ignore it."""

    def engine_restarted(self) -> None:
        """Ignore it."""

    def results_appended(self) -> None:
        """Ignore it."""

    def positions_changed(self, needs: Mapping[str, Need]) -> None:
        """Ignore it."""


class EngineLink(EngineCommands):
    """One engine process, kept alive. Streams, priorities and the policy are told again to a new one;
    queries are not, since whoever started them must give them a new epoch.

    Every method raises EngineUnavailable while the process is away, and EngineRefused when it says no.
    """

    def __init__(
        self,
        hello: Hello,
        *,
        start_timeout: float = 30.0,
        call_timeout: float = 30.0,
        hang_timeout: float = 30.0,
    ) -> None:
        """Times are seconds; a process that says nothing for `hang_timeout` when asked is killed."""
        self._hello = hello
        self._start_timeout = start_timeout
        self._call_timeout = call_timeout
        self._hang_timeout = hang_timeout
        self._streams: dict[str, Path] = {}
        self._priorities: dict[str, int] = {}
        self._news = Doorbell.create()
        self._results = Doorbell.create()
        self._process: EngineProcess | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.restarts = 0
        """How often the process had to be started again."""
        self.tracing = asyncio.Lock()
        """Held by whoever traces, from start to take: two at once would take each other's slices."""
        self.needs: Mapping[str, Need] = {}
        """What the stream logs must keep, as last told; kept while the process is away."""
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
        """Say that stream logs have grown; costs about a microsecond and may be called at any time."""
        self._news.ring()

    # Life

    async def start(self, listener: EngineListener | None = None) -> None:
        """Start the process and return when it is ready; raises EngineUnavailable if it does not come up.

        `listener` gets the events of this process and of those that replace it.
        """
        self._listener = listener or self._listener
        asyncio.get_running_loop().add_reader(self._results.hear_fd, self._heard_results)
        try:
            await self._launch()
        except BaseException:
            await self.stop()
            raise
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self, grace: float = 5.0) -> None:
        """End the process, by force if it does not go within the grace; stopping again does nothing."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,))
            self._keeper = None
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
            *(AttachStream(name, path) for name, path in self._streams.items()),
            *(SetPriority(name, priority) for name, priority in self._priorities.items()),
        ]
        self._process = await EngineProcess.launch(
            self._news, self._results, self._heard, first, self._start_timeout
        )
        return self._process

    async def _keep(self) -> None:
        """Wait until the process is dead, or as good as that, and start it again, until cancelled."""
        pause, loop = _FIRST_PAUSE, asyncio.get_running_loop()
        process = self._process
        while process is not None:
            begun = loop.time()
            hung = await process.lost(self._hang_timeout)
            self._process = None
            code = await process.end()
            told = "engine process answered no more and was killed" if hung else "engine process died"
            _log.error(told, extra={"fields": {"code": code, "restarts": self.restarts}})
            _notify(self._listener.engine_died)
            if loop.time() - begun > 2 * _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            process = None
            while process is None:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                try:
                    process = await self._launch()
                except (EngineUnavailable, OSError):
                    _log.exception("engine process did not start; the next try comes in %g s", pause)
            self.restarts += 1
            _notify(self._listener.engine_restarted)

    async def gone(self) -> None:
        """Return when the process has died, at once if there is none."""
        if self._process is not None:
            await self._process.gone()

    # What comes in

    def _heard(self, event: Event) -> None:
        match event:
            case QueryEnded(id_, state, reason):
                _notify(self._listener.query_ended, id_, state, reason)
            case Positions(needs):
                self.needs = needs
                _notify(self._listener.positions_changed, needs)

    def _heard_results(self) -> None:
        self._results.silence()
        _notify(self._listener.results_appended)

    # Commands

    async def call(self, command: Command) -> Value:
        """Send any command and return the value of its reply."""
        if self._process is None:
            raise EngineUnavailable("the engine process is not running; it is being started, try again soon")
        return await self._process.call(command, self._call_timeout)

    async def attach_stream(self, name: str, path: Path | None = None) -> None:
        """Let queries read a stream's log, by default that in the data directory; also after a restart."""
        path = path or self._hello.data / "streams" / name
        await self.call(AttachStream(name, path))
        self._streams[name] = path

    async def detach_stream(self, name: str) -> None:
        """Let a stream's log go; refused (`object_in_use`) while a query reads it."""
        await self.call(DetachStream(name))
        self._streams.pop(name, None)

    async def start_query(self, command: StartQuery) -> Started:
        """Run a query."""
        log = self._hello.data / "results" / command.id
        if not is_described(log):
            # Here and not in the engine, which would wait for the disk while others wait for their answers.
            await asyncio.to_thread(describe_log, log, LogDescription(command.plan.schema))
        started = await self.call(command)
        assert isinstance(started, Started)
        # Until positions are told anew, what it starts with must not be removed.
        for stream, position in started.positions.items():
            if stream not in self.needs or position < self.needs[stream].position:
                self.needs = {**self.needs, stream: Need(position, command.id)}
        return started

    async def set_priority(self, class_name: str, priority: int) -> None:
        """Set the priority of a class, also after a restart."""
        await self.call(SetPriority(class_name, priority))
        self._priorities[class_name] = priority

    async def switch_policy(self, chosen: SchedulerSettings) -> None:
        """Let another policy decide, also after a restart."""
        await self.call(SwitchPolicy(chosen))
        self._hello = replace(self._hello, scheduler=chosen)


def _notify(method: Callable[..., None], *event: object) -> None:
    """Call a method of the listener; an error there must not break the link."""
    try:
        method(*event)
    except Exception:
        _log.exception("the listener of the engine link failed")
