"""Being on time: waiting to within what the operating system can do, and not being held up."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

NEAR = 0.003
"""Seconds ahead of a point in time from which on event loops are too coarse: they count milliseconds."""
_NAP = 0.0005
_SELDOM = 50_000, 20, 20
"""When to collect meanwhile: frames that wait for acks are many and in no circles, and looking at them takes
milliseconds."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep collections short meanwhile: they do not look at what is there already, which can take 60 ms."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def until(moment: float) -> None:
    """Return at a moment of the monotonic clock that is near; lets other tasks run at least once.

    The last half millisecond is slept through in the loop's own thread. A timer of the loop would be up to
    a millisecond late, and whatever comes in meanwhile is looked at before the next frame is made.
    """
    await asyncio.sleep(0)
    while (left := moment - time.monotonic()) > 0:
        time.sleep(min(left, _NAP))
        if left > _NAP:
            await asyncio.sleep(0)
