"""The hub: polls topics for all viewers with the same token, at most once a second.

Viewers share topics. A topic is polled while somebody watches it, and its history is kept for a while after
the last viewer has left. Polling takes at most a small share of the server's time: after a slow answer the
next one is asked for later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TypeVar

from mavstream import (
    AsyncClient,
    MavstreamError,
    NotAuthorised,
    Retry,
    ServerProblem,
    TooMany,
    TransportError,
)
from mavstream_page.data.topic import Topic
from mavstream_page.data.uploads import Upload
from mavstream_protocol.wire.resources import ServerInfo

T = TypeVar("T", bound=Topic)

_LOG = logging.getLogger("mavstream.page")

PERIOD_S = 1.0
"""The least time between two refreshes."""
_REST, _LONGEST_PAUSE_S = 4.0, 5.0
"""The pause after a refresh, as a multiple of what it took, and its bound."""
_KEEP_S = 120.0
"""How long a topic without viewers is kept, with its history."""
_RETRY = Retry(attempts=1)


class Hub:
    """What viewers with one token see of the server."""

    def __init__(self, url: str, token: str | None) -> None:
        self.token = token
        self.client = AsyncClient(url, token=token, timeout=5.0, retry=_RETRY)
        self.info: ServerInfo | None = None
        """What the server says about itself; None before its first answer."""
        self.trouble: str | None = None
        """Why the server does not answer; None if it does."""
        self.refused: str | None = None
        """Why the server takes no request without a token, or not with this one."""
        self.uploads: dict[str, Upload] = {}
        """The last file that was sent for each stream."""
        self._topics: dict[Hashable, Topic] = {}
        self._watches: dict[Watch, None] = {}
        self._left: dict[Hashable, float] = {}
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._patient: AsyncClient | None = None

    @property
    def watched(self) -> int:
        """The number of viewers."""
        return len(self._watches)

    def patient(self) -> AsyncClient:
        """Return a client that waits longer for an answer."""
        if self._patient is None:
            self._patient = AsyncClient(self.client.url, token=self.token, timeout=65.0, retry=_RETRY)
        return self._patient

    def topic(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the topic of a key, made if there is none."""
        found = self._topics.get(key)
        if found is None:
            found = self._topics[key] = make()
        return found  # type: ignore[return-value]

    def watch(self, keys: tuple[Hashable, ...], changed: Callable[[], None]) -> Watch:
        """Poll topics until the watch is closed; `changed` is called after each refresh."""
        watch = Watch(self, keys, changed)
        self._watches[watch] = None
        self._woken.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return watch

    async def first(self, timeout: float = 1.5) -> None:
        """Return when the server has answered or has not in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._answered()

    async def close(self) -> None:
        """Stop polling and close the connections."""
        for upload in self.uploads.values():
            upload.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.client.close()
        if self._patient is not None:
            await self._patient.close()

    def forget(self, watch: Watch) -> None:
        """End a watch."""
        if self._watches.pop(watch, self) is not self:
            now = asyncio.get_running_loop().time()
            self._left |= dict.fromkeys(watch.keys, now)

    async def _answered(self) -> None:
        while any(self._topics[key].polled is None for watch in self._watches for key in watch.keys):
            if self.trouble or self.refused or any(topic.error for topic in self._topics.values()):
                return
            await asyncio.sleep(0.02)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._watches:
            self._woken.clear()
            started = loop.time()
            await self._refresh(started)
            took = loop.time() - started
            for watch in list(self._watches):
                try:
                    watch.changed()
                except Exception:
                    _LOG.exception("a view could not be refreshed")
            with suppress(TimeoutError):
                async with asyncio.timeout(max(PERIOD_S - took, min(took * _REST, _LONGEST_PAUSE_S))):
                    await self._woken.wait()
        self._expire(loop.time())

    async def _refresh(self, now: float) -> None:
        try:
            if self.info is None or self.trouble or self.refused:
                self.info = await self.client.info()
            for key in {key: None for watch in self._watches for key in watch.keys}:
                topic = self._topics[key]
                if topic.polled is None or now - topic.polled >= topic.every - 0.1:
                    await self._poll(topic, now)
            self.trouble = self.refused = None
        except NotAuthorised as error:
            self.refused, self.info = str(error), None
        except (TransportError, MavstreamError) as error:
            self.trouble = str(error)
        self._expire(now)

    async def _poll(self, topic: Topic, now: float) -> None:
        try:
            await topic.poll(self.client, now)
        except (NotAuthorised, TransportError, TooMany, ServerProblem):
            raise
        except MavstreamError as error:
            topic.error = str(error)
        else:
            topic.error = None
        topic.polled = now

    def _expire(self, now: float) -> None:
        watched = {key for watch in self._watches for key in watch.keys}
        for key in [key for key, left in self._left.items() if now - left > _KEEP_S or key in watched]:
            del self._left[key]
            if key not in watched:
                self._topics.pop(key, None)


class Watch:
    """A viewer's interest in topics."""

    def __init__(self, hub: Hub, keys: tuple[Hashable, ...], changed: Callable[[], None]) -> None:
        self._hub = hub
        self.keys = keys
        self.changed = changed

    def close(self) -> None:
        """End it; nothing happens the second time."""
        self._hub.forget(self)


class Hubs:
    """The hubs of all tokens in use."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._hubs: dict[str | None, Hub] = {}

    def of(self, token: str | None) -> Hub:
        """Return the hub of a token."""
        if token not in self._hubs:
            self._hubs[token] = Hub(self._url, token)
        return self._hubs[token]

    async def drop(self, token: str | None) -> None:
        """Forget a token and what was read with it."""
        hub = self._hubs.pop(token, None)
        if hub is not None:
            await hub.close()

    async def close(self) -> None:
        """Close all hubs."""
        for token in list(self._hubs):
            await self.drop(token)
