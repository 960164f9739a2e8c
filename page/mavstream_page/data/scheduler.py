"""The scheduler: its policy, those that can be chosen, traces of who ran when, comparisons of policies."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from typing import Any, ClassVar

from mavstream import AsyncClient, MavstreamError
from mavstream_page.data.topic import Topic
from mavstream_protocol import QueryClass
from mavstream_protocol.scheduling import SchedulerSettings, SchedulerTrace
from mavstream_protocol.wire.resources import PolicyInfo

TRACE_S = 0.5
"""How long a trace is, in seconds."""
_SIMULATED_S = 5
_LONGEST_COMPARISON_S = 120.0


class SchedulerTopic(Topic):
    """The policy in use and those that can be chosen."""

    key = "scheduler"

    def __init__(self) -> None:
        super().__init__()
        self.current: SchedulerSettings | None = None
        self.policies: list[PolicyInfo] = []
        self.classes: list[QueryClass] = []
        """The most important first."""

    async def poll(self, client: AsyncClient, now: float) -> None:
        """Read the policy; the list of policies is read once."""
        self.current = await client.scheduler()
        self.classes = sorted(await client.classes(), key=lambda one: (-one.priority, one.name))
        if not self.policies:
            self.policies = await client.policies()


class TraceTopic(Topic):
    """A short trace of who ran when, taken anew every few seconds."""

    key = "trace"
    every: ClassVar[float] = 5.0

    def __init__(self) -> None:
        super().__init__()
        self.trace: SchedulerTrace | None = None
        self.failed: str | None = None
        self._task: asyncio.Task[None] | None = None

    async def poll(self, client: AsyncClient, now: float) -> None:
        """Start a trace beside the polls of other topics, which do not wait for it."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._take(client))

    async def _take(self, client: AsyncClient) -> None:
        try:
            self.trace, self.failed = await client.trace(TRACE_S), None
        except MavstreamError as error:
            self.failed = str(error)


class Comparison:
    """A simulation of the current workload under several policies, in a process of its own."""

    def __init__(self, url: str, token: str | None, policies: list[str]) -> None:
        self.policies = policies
        self.results: dict[str, dict[str, Any]] | None = None
        """By policy: `classes` with predicted latencies in milliseconds, and further metrics."""
        self.failed: str | None = None
        self._task = asyncio.create_task(self._run(url, token))

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return not self._task.done()

    async def _run(self, url: str, token: str | None) -> None:
        # The token goes through the environment, which other users cannot read.
        environment = {name: value for name, value in os.environ.items() if name != "MAVSTREAM_TOKEN"}
        if token is not None:
            environment["MAVSTREAM_TOKEN"] = token
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mavstream", "simulate", "--from-server", url),
            *("--compare", ",".join(self.policies), "--seconds", str(_SIMULATED_S), "--json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_nice,
            env=environment,
        )
        try:
            async with asyncio.timeout(_LONGEST_COMPARISON_S):
                out, errors = await process.communicate()
        except TimeoutError:
            self.failed = "the simulation took longer than two minutes: compare fewer policies"
            return
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
        if process.returncode:
            self.failed = errors.decode(errors="replace").strip()[-600:]
        else:
            self.results = json.loads(out)


def _nice() -> None:
    os.nice(15)
