"""One life of an engine process: how it is started, what it is told first, and how it ends."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Self

from mavstream_server.engine.process.doorbell import Doorbell
from mavstream_server.engine.process.messages import Command, Event, GetEngineMetrics, Ready, Shutdown, Value
from mavstream_server.supervisor.caller import Caller, EngineRefused, EngineUnavailable

_EXIT = 0.05  # seconds: a death shows on the channel just ahead of the exit
_QUESTIONS = 3  # left unanswered one after the other before a process counts as hung


class EngineProcess:
    """A process that runs, with the channel to it; made by `launch`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._caller: Caller | None = None

    @classmethod
    async def launch(
        cls,
        news: Doorbell,
        results: Doorbell,
        on_event: Callable[[Event], None],
        first: Iterable[Command],
        timeout: float,
    ) -> Self:
        """Start a process, tell it the first commands and return it; raises EngineUnavailable."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                started = cls(await _spawn(theirs.fileno(), news.hear_fd, results.ring_fd))
        except BaseException:
            ours.close()
            raise
        try:
            async with asyncio.timeout(timeout):
                await started._greet(ours, on_event, first, timeout)
        except TimeoutError:
            await started.end()
            raise EngineUnavailable(
                f"the engine process was not ready within {timeout:g} s; its standard error tells why"
            ) from None
        except BaseException:
            await started.end()
            raise
        return started

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def _greet(
        self,
        connection: socket.socket,
        on_event: Callable[[Event], None],
        first: Iterable[Command],
        timeout: float,
    ) -> None:
        greeted = asyncio.Event()

        def heard(event: Event) -> None:
            if isinstance(event, Ready):
                greeted.set()
            else:
                on_event(event)

        self._caller = await Caller.connect(connection, heard)
        await _first_of(greeted.wait(), self._caller.gone())
        if not greeted.is_set():
            raise EngineUnavailable("the engine process ended at once; its standard error tells why")
        for command in first:
            try:
                await self._caller.call(command, timeout)
            except EngineRefused as error:
                raise EngineUnavailable(f"the engine process cannot be set up: {error.detail}") from error

    async def call(self, command: Command, timeout: float) -> Value:
        """Send a command and return the value of its reply; raises EngineRefused, EngineUnavailable."""
        assert self._caller is not None
        return await self._caller.call(command, timeout)

    async def gone(self) -> None:
        """Return when the process has exited or its end of the channel is closed."""
        assert self._caller is not None
        await _first_of(self._caller.gone(), self._process.wait())

    async def lost(self, timeout: float) -> bool:
        """Return when the process is gone; or True when it hangs: nothing came for so long, though asked for.

        Questions are counted, and not only time: after a pause of this process itself the answers are there,
        but have yet to be read.
        """
        assert self._caller is not None
        caller, gone = self._caller, asyncio.create_task(self.gone())
        part, unanswered = timeout / _QUESTIONS, 0
        try:
            while unanswered < _QUESTIONS:
                heard = caller.heard
                if not unanswered:
                    await asyncio.wait((gone,), timeout=part)
                if caller.heard == heard and not gone.done():
                    with suppress(EngineUnavailable, EngineRefused):
                        await self.call(GetEngineMetrics(), part)
                if caller.over or gone.done():
                    return False
                unanswered = unanswered + 1 if caller.heard == heard else 0
            return True
        finally:
            gone.cancel()

    async def stop(self, grace: float) -> int:
        """Tell the process to end, wait for that at most twice the grace, and return its exit code."""
        with suppress(EngineUnavailable, EngineRefused):
            await self.call(Shutdown(), grace)
        return await self.end(grace)

    async def end(self, grace: float = _EXIT) -> int:
        """Close the channel, which ends a healthy process; kill it if that takes longer than the grace."""
        if self._caller is not None:
            await self._caller.close()
        try:
            async with asyncio.timeout(grace):
                return await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            return await self._process.wait()


async def _spawn(control_fd: int, news_fd: int, results_fd: int) -> asyncio.subprocess.Process:
    options = ("--control-fd", control_fd, "--news-fd", news_fd, "--results-fd", results_fd)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "mavstream_server.engine.process.host", *map(str, options)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        pass_fds=(control_fd, news_fd, results_fd),
        # A session of its own: what a terminal sends to this process's group must not reach the engine.
        start_new_session=True,
    )


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of them is done; the others are cancelled."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
