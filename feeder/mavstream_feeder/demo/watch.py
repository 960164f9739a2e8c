"""The demo's subscribers: one per query, each counting the rows that it receives."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from mavstream import AsyncClient, AsyncQuery
from mavstream_feeder.demo.outcome import ClassFigures
from mavstream_feeder.demo.queries import CLASSES

_PATIENCE = 60.0
_PERIOD = 0.1


@dataclass(frozen=True, slots=True)
class Asked:
    """A query that was submitted."""

    name: str
    class_: str
    query: AsyncQuery


class Watch:
    """Submits all queries and receives their answers."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._asked: list[Asked] = []
        self._received: Counter[str] = Counter()
        self._tasks: list[asyncio.Task[None]] = []

    async def submit(self, prefix: str) -> None:
        """Register classes and queries and subscribe to each query."""
        for each in CLASSES:
            await self._client.put_class(each.name, each.priority, each.description)
            for name, flow in each.queries.items():
                query = await self._client.submit(flow, name=f"{prefix}{name}", class_=each.name)
                self._asked.append(Asked(name, each.name, query))
        self._tasks = [asyncio.create_task(self._receive(asked)) for asked in self._asked]

    async def figures(self) -> dict[str, ClassFigures]:
        """Return what each class got so far."""
        shown = (await self._client.stats())["classes"]
        of_class: Counter[str] = Counter()
        for asked in self._asked:
            of_class[asked.class_] += self._received[asked.name]
        return {
            each.name: ClassFigures.of(shown[each.name], len(each.queries), of_class[each.name])
            for each in CLASSES
        }

    async def settle(self) -> list[str]:
        """Wait until all input is answered and received; return what is missing after a long wait."""
        deadline = time.monotonic() + _PATIENCE
        before: dict[str, int] = {}
        while True:
            given = {asked.name: (await asked.query.info()).results for asked in self._asked}
            quiet = given == before and all(self._received[name] == n for name, n in given.items())
            if quiet and not await self._backlog():
                break
            if time.monotonic() > deadline:
                missing = [name for name, n in given.items() if self._received[name] != n]
                return [f"queries are not at rest after {_PATIENCE:g} s: {', '.join(missing) or 'backlog'}"]
            before = given
            await asyncio.sleep(_PERIOD)
        return [f"query '{name}' gave no results" for name, n in given.items() if not n]

    async def close(self, *, remove: bool) -> list[str]:
        """End the subscriptions, and the queries if asked; return what went wrong with them."""
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        if remove:
            for asked in self._asked:
                await asked.query.delete()
        return [
            f"query '{asked.name}': {error}"
            for asked, error in zip(self._asked, ended, strict=False)
            if isinstance(error, Exception)
        ]

    async def _receive(self, asked: Asked) -> None:
        async with asked.query.results(on_gap="raise") as results:
            async for batch in results.batches():
                self._received[asked.name] += batch.num_rows

    async def _backlog(self) -> bool:
        classes = (await self._client.stats())["classes"]
        return any(
            classes[each.name]["memory_bytes"][kind] for each in CLASSES for kind in ("queued", "backlog")
        )
