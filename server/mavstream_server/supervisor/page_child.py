"""The process of the browser page: started with the server, watched, and started again if it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from enum import StrEnum
from importlib.util import find_spec

_LOG = logging.getLogger("mavstream.server")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_HEALTHY_S = 30.0
"""A process that ran so long is started again at once."""
_NICENESS = 10


class PageState(StrEnum):
    """Whether the page can be opened."""

    OFF = "off"
    MISSING = "missing"
    """Its packages are not installed."""
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"


class PageChild:
    """Runs `mavstream page` for one server. Its standard input is a pipe that ends with this process."""

    def __init__(self) -> None:
        self.state = PageState.OFF
        self.port: int | None = None
        """The port on which it listens, once it does."""

    @staticmethod
    def installed() -> bool:
        """Return whether its packages are installed."""
        return find_spec("mavstream_page") is not None and find_spec("nicegui") is not None

    async def run(self, arguments: list[str], environment: dict[str, str]) -> None:
        """Start the process and keep it running until this is cancelled."""
        if not self.installed():
            self.state = PageState.MISSING
            return
        loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE_S
        while True:
            started = loop.time()
            code = await self._run_once(arguments, environment)
            pause = _FIRST_PAUSE_S if loop.time() - started > _HEALTHY_S else min(2 * pause, _LONGEST_PAUSE_S)
            self.state = PageState.FAILED
            _LOG.error("the page ended, it is started again", extra={"code": code, "after_s": pause})
            await asyncio.sleep(pause)

    async def _run_once(self, arguments: list[str], environment: dict[str, str]) -> int:
        """Run a process until it ends; returns its exit code."""
        self.state = PageState.STARTING
        others = {name: value for name, value in os.environ.items() if not name.startswith("MAVSTREAM_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mavstream_page.commands", *arguments, "--child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # A session of its own: signals of a terminal to this process's group must not reach it.
            start_new_session=True,
            preexec_fn=_nice,
            env={**others, **environment},
        )
        try:
            assert process.stdout is not None
            # It prints its port when it listens, and nothing else.
            line = await process.stdout.readline()
            if line.strip().isdigit():
                self.port, self.state = int(line), PageState.RUNNING
                _LOG.info("page is served", extra={"port": self.port, "page_pid": process.pid})
            return await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2.0):
                        await process.wait()
                if process.returncode is None:
                    process.kill()


def _nice() -> None:
    os.nice(_NICENESS)
