"""Punctuality: sleeping to within what the operating system can do, with short garbage collections."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

NEAR = 0.003
"""Seconds ahead of a point in time from which on timers of event loops are too coarse: they count
milliseconds."""
_NAP = 0.0005
_THRESHOLDS = 50_000, 20, 20
"""Thresholds of the collector: frames that wait for acknowledgements are many and in no cycles, and looking
at them takes milliseconds."""


@contextmanager
def short_collections() -> Iterator[None]:
    """Keep garbage collections short: they skip the objects of before, which can take 60 ms to look at."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def sleep_until(moment: float) -> None:
    """Return at a moment of the monotonic clock that is near; lets other tasks run at least once.

    The last half millisecond is slept in the loop's own thread. A timer of the loop would be up to a
    millisecond late, and whatever is received meanwhile is handled before the next frame is made.
    """
    await asyncio.sleep(0)
    while (left := moment - time.monotonic()) > 0:
        time.sleep(min(left, _NAP))
        if left > _NAP:
            await asyncio.sleep(0)
