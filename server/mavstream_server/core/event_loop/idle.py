"""Idleness of an event loop: when work that nobody waits for can begin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_LATE = 0.02
"""A loop that wakes up so many seconds late is busy."""


async def idle(
    pause: float,
    attempts: int = 30,
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait for a time (s) at the end of which the event loop is not busy.

    A loop that is busy at every attempt is not waited for any longer: what is put off must not be put off
    forever.
    """
    for _ in range(attempts):
        due = clock() + pause
        await sleep(pause)
        if clock() - due < _LATE:
            return
