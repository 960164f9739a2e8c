"""Waiting for an idle event loop, with a scripted clock."""

from __future__ import annotations

import asyncio

import pytest

from mavstream_server.core.event_loop.idle import idle


@pytest.mark.parametrize(("delays", "expected"), [([0.0], 1), ([0.3, 0.05, 0.001, 9.0], 3), ([0.5] * 40, 5)])
def test_work_begins_when_the_loop_wakes_up_in_time_or_after_the_last_attempt(
    delays: list[float], expected: int
) -> None:
    now, pauses = 0.0, 0

    async def sleep(seconds: float) -> None:
        nonlocal now, pauses
        now += seconds + delays[pauses]
        pauses += 1

    asyncio.run(idle(1.0, 5, sleep=sleep, clock=lambda: now))
    assert pauses == expected
