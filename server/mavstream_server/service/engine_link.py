"""The link to the engine process: starts it, talks to it, notices its death and starts it again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_server.engine.doorbell import Doorbell
from mavstream_server.engine.figures import ClassFigures, ClassStats, EngineStats, EngineTotals, QueryStats
from mavstream_server.engine.messages import (
    AttachStream,
    Command,
    DetachStream,
    Event,
    ForgetQuery,
    GetClasses,
    GetStats,
    GetTotals,
    Hello,
    Need,
    PauseQuery,
    Positions,
    QueryEnded,
    Reclass,
    ResumeQuery,
    SetPriority,
    Started,
    StartQuery,
    StartTrace,
    StopQuery,
    SwitchPolicy,
    TakeTrace,
    Value,
)
from mavstream_server.engine.trace import RecordedSlices
from mavstream_server.log.description import LogDescription, agree_description
from mavstream_server.log.problems import LogError
from mavstream_server.service.engine_caller import EngineRefused, EngineUnavailable
from mavstream_server.service.engine_process import EngineProcess
from mavstream_server.service.problems import storage_problem

__all__ = ["EngineLink", "EngineRefused", "EngineUnavailable"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between a death and the next start
_PAGE = 50  # queries per request for figures: a page holds up the engine's work for some 2 ms


class EngineLink:
    """One engine process, kept alive. Streams, priorities and the policy are told again to a new one;
    queries are not, since whoever started them must give them a new epoch.

    Every method raises EngineUnavailable while the process is away, and EngineRefused when it says no.
    """

    def __init__(self, hello: Hello, *, start_timeout: float = 30.0, call_timeout: float = 30.0) -> None:
        self._hello = hello
        self._start_timeout = start_timeout
        self._call_timeout = call_timeout
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
        self.on_query_ended: Callable[[str, str, str | None], None] = _ignore
        """Called with id, state (`finished`, `failed`) and reason; all answers are in the log."""
        self.on_death: Callable[[], None] = _ignore
        """Called when the process has died: queries run no more, `ready` is false."""
        self.on_restart: Callable[[], None] = _ignore
        """Called when a new process is ready and queries should be started again; not at the first start."""
        self.on_results: Callable[[], None] = _ignore
        """Called when results were appended since the last call."""
        self.on_positions: Callable[[Mapping[str, Need]], None] = _ignore
        """Called when `needs` has changed."""

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

    async def start(self) -> None:
        """Start the process and return when it is ready; raises EngineUnavailable if it does not come up."""
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
        """Wait for the process's death and start it again, until cancelled."""
        pause, loop = _FIRST_PAUSE, asyncio.get_running_loop()
        process = self._process
        while process is not None:
            begun = loop.time()
            await process.gone()
            self._process = None
            code = await process.end()
            _log.error("engine process died", extra={"fields": {"code": code, "restarts": self.restarts}})
            _tell(self.on_death)
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
            _tell(self.on_restart)

    async def gone(self) -> None:
        """Return when the process has died, at once if there is none."""
        if self._process is not None:
            await self._process.gone()

    # What comes in

    def _heard(self, event: Event) -> None:
        match event:
            case QueryEnded(id_, state, reason):
                _tell(self.on_query_ended, id_, state, reason)
            case Positions(needs):
                self.needs = needs
                _tell(self.on_positions, needs)

    def _heard_results(self) -> None:
        self._results.silence()
        _tell(self.on_results)

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
        log, schema = self._hello.data / "results" / command.id, command.plan.schema
        # Here and not in the engine, which would wait for the disk while others wait for their answers.
        await asyncio.to_thread(_describe, log, LogDescription(schema))
        started = await self.call(command)
        assert isinstance(started, Started)
        # Until positions are told anew, what it starts with must not be removed.
        for stream, position in started.positions.items():
            if stream not in self.needs or position < self.needs[stream].position:
                self.needs = {**self.needs, stream: Need(position, command.id)}
        return started

    async def stop_query(self, id_: str) -> None:
        """End a query; its figures stay until it is forgotten."""
        await self.call(StopQuery(id_))

    async def forget_query(self, id_: str) -> None:
        """Drop a query from the engine's books; the files of its result log may be removed afterwards."""
        await self.call(ForgetQuery(id_))

    async def pause_query(self, id_: str) -> None:
        """Detach a query from its streams."""
        await self.call(PauseQuery(id_))

    async def resume_query(self, id_: str) -> None:
        """Let a paused query go on with the next rows."""
        await self.call(ResumeQuery(id_))

    async def reclass(self, id_: str, class_name: str) -> None:
        """Move a query to another class."""
        await self.call(Reclass(id_, class_name))

    async def set_priority(self, class_name: str, priority: int) -> None:
        """Set the priority of a class, also after a restart."""
        await self.call(SetPriority(class_name, priority))
        self._priorities[class_name] = priority

    async def switch_policy(self, chosen: SchedulerSettings) -> None:
        """Let another policy decide, also after a restart."""
        await self.call(SwitchPolicy(chosen))
        self._hello = replace(self._hello, scheduler=chosen)

    async def start_trace(self, most: int) -> None:
        """Record slices from now on, up to a number; `take_trace` must follow, whatever happens."""
        await self.call(StartTrace(most))

    async def take_trace(self) -> RecordedSlices:
        """Stop recording and return what was recorded: nothing by a process that was started since."""
        recorded = await self.call(TakeTrace())
        assert isinstance(recorded, RecordedSlices)
        return recorded

    async def classes(self) -> dict[str, ClassStats]:
        """Return the figures of the classes that have queries."""
        figures = await self.call(GetClasses())
        assert isinstance(figures, ClassFigures)
        return figures.classes

    async def totals(self) -> EngineTotals:
        """Return the engine's own figures."""
        totals = await self.call(GetTotals())
        assert isinstance(totals, EngineTotals)
        return totals

    async def stats(self, ids: Iterable[str] | None = None) -> EngineStats:
        """Return the figures of the engine and of these queries, or of all."""
        totals = await self.totals()
        wanted = totals.ids if ids is None else tuple(ids)
        queries: dict[str, QueryStats] = {}
        for start in range(0, len(wanted), _PAGE):
            page = await self.call(GetStats(wanted[start : start + _PAGE]))
            assert isinstance(page, dict)
            queries |= page
        return EngineStats(totals, queries)


def _describe(log: Path, description: LogDescription) -> None:
    """Make sure that a result log has a directory and a description, safe on disk."""
    try:
        log.mkdir(parents=True, exist_ok=True)
        agree_description(log, description)
    except LogError as error:
        raise EngineRefused(str(error), code=error.code) from error
    except OSError as error:
        raise storage_problem(f"result log {log.name!r}", error) from error


def _ignore(*_: object) -> None:
    """Stand in until someone listens."""


def _tell(listener: Callable[..., None], *news: object) -> None:
    """Call a listener; what breaks there must not break the link."""
    try:
        listener(*news)
    except Exception:
        _log.exception("a listener of the engine link broke")
