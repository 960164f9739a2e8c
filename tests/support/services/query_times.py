"""Queries of a service whose clock is advanced by hand: times, changes and states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.servers.running_server import PATIENCE
from tests.support.services.query_service import HOT, Service

from mavstream_protocol.wire.resources import ActualState, QueryChange, QueryInfo
from mavstream_server.testing import ManualClock

Test = Callable[[Service], Coroutine[Any, Any, None]]
Run = Callable[[Test], None]
HOUR = 3_600_000_000


def in_hours(clock: ManualClock, hours: float) -> int:
    return clock.now() // 1000 + int(hours * HOUR)


def change(**values: Any) -> QueryChange:
    return QueryChange.model_validate(values)


async def register(made: Service, **values: Any) -> QueryInfo:
    return await made.queries.register({**HOT, **values})


async def state(made: Service, id_: str) -> ActualState:
    return (await made.queries.views.info(id_)).state


async def advance(made: Service, clock: ManualClock, hours: float) -> None:
    """Advance the clock and start the queries that are due."""
    clock.advance(seconds=hours * 3600)
    made.queries.start_times.tick()
    await asyncio.wait_for(made.queries.placement.settled(), PATIENCE)


def temps(rows: list[dict[str, Any]]) -> list[int]:
    return [row["temp"] for row in rows]
