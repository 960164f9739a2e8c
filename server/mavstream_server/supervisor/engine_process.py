"""One engine process: starting it, its first commands, detecting that it hangs, and stopping it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Self

from mavstream_server.engine.crash_record import CrashRecord
from mavstream_server.engine.process.events import Event, Ready
from mavstream_server.engine.process.messages import Command, GetEngineMetrics, Shutdown, Value
from mavstream_server.supervisor.caller import Caller, EngineRefused, EngineUnavailable
from mavstream_server.supervisor.engine_child import EngineChild

_EXIT = 0.05  # seconds: the channel of a dying process closes just before the process exits
_PROBES = 3  # unanswered in a row before a process counts as hung


class EngineProcess:
    """A running engine process and the channel to it; created by `launch`."""

    def __init__(self, process: EngineChild) -> None:
        self._process = process
        self._caller: Caller | None = None

    @classmethod
    async def launch(
        cls, child: EngineChild, on_event: Callable[[Event], None], first: Iterable[Command], timeout: float
    ) -> Self:
        """Wait for a started process, send it the first commands and return it; raises EngineUnavailable."""
        started = cls(child)
        try:
            async with asyncio.timeout(timeout):
                await started._greet(child.control, on_event, first, timeout)
        except TimeoutError:
            await started.end()
            raise EngineUnavailable(
                f"the engine process was not ready within {timeout:g} s; see its standard error"
            ) from None
        except BaseException:
            await started.end()
            raise
        return started

    @property
    def record(self) -> CrashRecord:
        """What the process runs, or ran when it died."""
        return self._process.record

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

        def handle(event: Event) -> None:
            if isinstance(event, Ready):
                greeted.set()
            else:
                on_event(event)

        self._caller = await Caller.connect(connection, handle)
        await _first_of(greeted.wait(), self._caller.gone())
        if not greeted.is_set():
            raise EngineUnavailable("the engine process exited at once; see its standard error")
        for command in first:
            try:
                await self._caller.call(command, timeout)
            except EngineRefused as error:
                raise EngineUnavailable(f"the engine process cannot be set up: {error.detail}") from error

    async def call(self, command: Command, timeout: float, *, large: bool = False) -> Value:
        """Send a command and return the value of its reply; raises EngineRefused, EngineUnavailable."""
        assert self._caller is not None
        return await self._caller.call(command, timeout, large=large)

    async def gone(self) -> None:
        """Return when the process has exited or its end of the channel is closed."""
        assert self._caller is not None
        await _first_of(self._caller.gone(), self._process.wait())

    async def lost(self, timeout: float) -> bool:
        """Wait until the process is gone, and return False, or hangs, and return True.

        A process hangs if it sends nothing for `timeout` seconds although it is probed. Probes are counted,
        not only time: if this process itself was suspended, the replies have arrived but are not read yet.
        """
        assert self._caller is not None
        caller, gone = self._caller, asyncio.create_task(self.gone())
        probe_timeout, unanswered = timeout / _PROBES, 0
        try:
            while unanswered < _PROBES:
                received = caller.received
                if not unanswered:
                    await asyncio.wait((gone,), timeout=probe_timeout)
                if caller.received == received and not gone.done():
                    with suppress(EngineUnavailable, EngineRefused):
                        await self.call(GetEngineMetrics(), probe_timeout)
                if caller.closed or gone.done():
                    return False
                unanswered = unanswered + 1 if caller.received == received else 0
            return True
        finally:
            gone.cancel()

    async def stop(self, grace: float) -> int:
        """Ask the process to exit, wait for at most twice the grace (s), and return its exit code."""
        with suppress(EngineUnavailable, EngineRefused):
            await self.call(Shutdown(), grace)
        return await self.end(grace)

    async def end(self, grace: float = _EXIT) -> int:
        """Close the channel, which ends a healthy process; kill it after `grace` s, return the exit code."""
        if self._caller is not None:
            await self._caller.close()
        try:
            async with asyncio.timeout(grace):
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of the coroutines is done and cancel the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
