"""Validation of a draft by the server while somebody edits it: at most one request a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mavstream import AsyncClient, MavstreamError, TransportError
from mavstream_page.composer.draft import Draft

PERIOD_S = 1.0
"""The least time between two requests."""


class Checker:
    """Validates a draft after it was changed."""

    def __init__(self, draft: Draft, client: AsyncClient, checked: Callable[[], None]) -> None:
        """`checked` is called after each answer."""
        self._draft = draft
        self._client = client
        self._checked = checked
        self._stale = False
        self._last = -PERIOD_S
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Validate the draft soon."""
        self._stale = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._stale:
            await asyncio.sleep(self._last + PERIOD_S - loop.time())
            self._stale, self._last = False, loop.time()
            try:
                await self._draft.validate(self._client)
            except TransportError:
                # The page says that the server is away; the next change asks again.
                continue
            except MavstreamError as error:
                self._draft.refuse(str(error))
            self._checked()
