"""Plays the acts of the demo's story: sets policy and load, and measures."""

from __future__ import annotations

from typing import Any

from mavstream import AsyncClient
from mavstream_feeder.demo.load import Load
from mavstream_feeder.demo.queries import CLASSES
from mavstream_feeder.demo.story import ACTS, Act, Measured, measured
from mavstream_protocol.scheduling import SchedulerSettings


class Director:
    """Leads a server through the acts, and back to the policy that it had."""

    def __init__(self, client: AsyncClient, load: Load, own: SchedulerSettings) -> None:
        self._client = client
        self._load = load
        self._own = own
        self._policy = own.policy
        self._act: Act | None = None
        self._before: dict[str, Any] = {}
        self._since = 0.0
        self.acts: list[Measured] = []
        """What the acts so far have shown."""

    async def begin(self, act: Act) -> str:
        """Set policy and load of an act; returns its policy."""
        await self._set(act.policy)
        await (self._load.start() if act.loaded else self._load.stop())
        return self._policy

    async def measure(self, act: Act, now: float) -> None:
        """Begin to measure, when rows that waited before the act are answered."""
        self._act, self._before, self._since = act, await self._classes(), now

    async def end(self, now: float) -> None:
        """End the act that is measured."""
        assert self._act is not None
        after = await self._classes()
        self.acts.append(measured(self._act, self._policy, now - self._since, self._before, after))

    async def close(self, *, restore: bool) -> None:
        """End the load; with `restore`, remove its queries and set the policy that the server had."""
        await self._load.stop(remove=restore)
        if restore:
            await self._set(None)

    async def _set(self, policy: str | None) -> None:
        wanted = policy or self._own.policy
        if wanted == self._policy:
            return
        if policy is None:
            await self._client.set_scheduler(wanted, self._own.sources, **self._own.options)
        else:
            await self._client.set_scheduler(wanted)
        self._policy = wanted

    async def _classes(self) -> dict[str, Any]:
        found = (await self._client.stats())["classes"]
        return {each.name: found[each.name] for each in CLASSES}


def acts_until(seconds: float) -> list[tuple[Act, float, float]]:
    """Return the acts with their begin and end, in seconds, of a story that takes so long."""
    begins = [0.0, *(act.until for act in ACTS[:-1])]
    return [(act, begin * seconds, act.until * seconds) for act, begin in zip(ACTS, begins, strict=True)]
