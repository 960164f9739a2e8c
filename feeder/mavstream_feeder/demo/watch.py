"""The demo's subscriptions: one per query, which count the received rows."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from mavstream import AsyncClient, AsyncQuery
from mavstream_feeder.demo.alarms import QUERY, FireAlarms
from mavstream_feeder.demo.latencies import Latencies
from mavstream_feeder.demo.outcome import ClassMetrics
from mavstream_feeder.demo.queries import CLASSES

_TIMEOUT = 60.0
_PERIOD = 0.1
_RECENT = 5.0
"""Seconds whose answers are recent."""


@dataclass(frozen=True, slots=True)
class SubmittedQuery:
    """A submitted query."""

    name: str
    class_: str
    query: AsyncQuery


class Watch:
    """Submits all queries and receives their results."""

    def __init__(self, client: AsyncClient, alarms: FireAlarms | None = None) -> None:
        self._client = client
        self._alarms = alarms
        self._submitted: list[SubmittedQuery] = []
        self._received: Counter[str] = Counter()
        self._history: deque[tuple[float, dict[str, Any]]] = deque()
        self.recent: dict[str, Latencies] = {}
        """Latencies of each class over the last seconds before `metrics` was called."""
        self._tasks: list[asyncio.Task[None]] = []

    async def submit(self, prefix: str) -> None:
        """Create classes, submit queries, and subscribe to each."""
        for each in CLASSES:
            await self._client.put_class(each.name, each.priority, each.description)
            for name, flow in each.queries.items():
                query = await self._client.submit(flow, name=f"{prefix}{name}", class_=each.name)
                self._submitted.append(SubmittedQuery(name, each.name, query))
        self._tasks = [asyncio.create_task(self._receive(each)) for each in self._submitted]

    async def metrics(self) -> dict[str, ClassMetrics]:
        """Return the metrics of each class so far."""
        stats = (await self._client.stats())["classes"]
        self._remember(stats)
        of_class: Counter[str] = Counter()
        for each in self._submitted:
            of_class[each.class_] += self._received[each.name]
        return {
            each.name: ClassMetrics.of(stats[each.name], len(each.queries), of_class[each.name])
            for each in CLASSES
        }

    def _remember(self, stats: dict[str, Any]) -> None:
        now = time.monotonic()
        self._history.append((now, stats))
        while now - self._history[0][0] > _RECENT:
            self._history.popleft()
        before = self._history[0][1]
        self.recent = {each.name: Latencies.between(before[each.name], stats[each.name]) for each in CLASSES}

    async def settle(self, *, all_answer: bool = True) -> list[str]:
        """Wait until all input is processed and all results are received; return failed checks.

        With `all_answer` a query without results is one. Over real homes most alarms have none.
        """
        deadline = time.monotonic() + _TIMEOUT
        before: dict[str, int] = {}
        while True:
            given = {each.name: (await each.query.info()).results for each in self._submitted}
            quiet = given == before and all(self._received[name] == n for name, n in given.items())
            if quiet and not await self._backlog():
                break
            if time.monotonic() > deadline:
                missing = [name for name, n in given.items() if self._received[name] != n]
                return [f"queries are not quiescent after {_TIMEOUT:g} s: {', '.join(missing) or 'backlog'}"]
            before = given
            await asyncio.sleep(_PERIOD)
        return [f"query '{name}' gave no results" for name, n in given.items() if all_answer and not n]

    async def close(self, *, remove: bool) -> list[str]:
        """End the subscriptions, and with `remove` the queries; return the errors of subscriptions."""
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        if remove:
            for each in self._submitted:
                await each.query.delete()
        return [
            f"query '{each.name}': {error}"
            for each, error in zip(self._submitted, ended, strict=False)
            if isinstance(error, Exception)
        ]

    async def _receive(self, each: SubmittedQuery) -> None:
        async with each.query.results(on_gap="raise") as results:
            async for batch in results.batches():
                self._received[each.name] += batch.num_rows
                if self._alarms is not None and each.name == QUERY:
                    self._alarms.take(batch, time.time_ns() // 1000)

    async def _backlog(self) -> bool:
        classes = (await self._client.stats())["classes"]
        return any(
            classes[each.name]["memory_bytes"][kind] for each in CLASSES for kind in ("queued", "backlog")
        )
