"""The scheduler: which policy decides now, with which options, and what it decides."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from mavstream_protocol.instants import format_instant
from mavstream_protocol.scheduling import LONGEST_TRACE, SchedulerSettings, SchedulerTrace
from mavstream_server.api.auth import require
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts, Services
from mavstream_server.core.clock import SystemClock
from mavstream_server.core.errors import Conflict, NotReady
from mavstream_server.core.settings import Role
from mavstream_server.engine.trace import RecordedSlices
from mavstream_server.supervisor.engine_link import EngineRefused, EngineUnavailable

router = APIRouter(prefix="/v1/scheduler", tags=["scheduling"])

MOST_SLICES = 50_000
"""Of a trace. Even of plans with 256 operators, the most there may be, the control channel carries them in
half of the bytes that it takes. The engine stands still while it hands them over, for some 4 us each."""

_CLOCK = SystemClock()
_MS = 1e6  # ns

Seconds = Annotated[
    float,
    Query(gt=0, le=LONGEST_TRACE, allow_inf_nan=False, description="How long to record", examples=[0.2]),
]


@router.get("", dependencies=[Depends(require())], responses=documented())
async def show_scheduler(parts: Parts) -> SchedulerSettings:
    """Show the policy that decides, and its options."""
    return parts.scheduler.current


@router.put("", dependencies=[Depends(require(Role.ADMIN))], responses=documented(409))
async def set_scheduler(chosen: SchedulerSettings, parts: Parts) -> SchedulerSettings:
    """Let another policy decide, at once; tuples in flight stay where they are.

    What the optimizer has on trial ends with it; this policy stays until it finds a reason to try another.
    """
    await parts.optimizer.overrule(lambda: parts.scheduler.choose(chosen), "the policy was chosen by hand")
    return chosen


@router.get(
    "/trace", dependencies=[Depends(require())], responses=documented(409), response_model=SchedulerTrace
)
async def trace_scheduler(request: Request, parts: Parts, seconds: Seconds = 2.0) -> Response:
    """Record who runs when, for how many tuples and how long, and answer at the end; one trace at a time."""
    await request.body()  # behind which the client's going is heard
    link = parts.link
    if link.tracing.locked():
        raise Conflict(
            "the scheduler is being traced already, and there is one trace at a time: "
            f"try again when that one has ended, {LONGEST_TRACE:g} s from now at the latest",
            code="trace_running",
        )
    async with link.tracing:
        policy = (await link.totals()).policy
        started = _CLOCK.now()
        recorded, ended = await _record(parts, request, seconds)
    # In a thread: thousands of slices take a while to write, and producers wait for their acks.
    answer = await asyncio.to_thread(_written, recorded, policy, started, ended)
    return Response(answer, media_type="application/json")


async def _record(parts: Services, request: Request, seconds: float) -> tuple[RecordedSlices, int]:
    """Trace for so long and return also when that ended; whatever happens, the engine records no more."""
    try:
        await parts.link.start_trace(MOST_SLICES)
        await _let_pass(parts, request, seconds)
    except BaseException:
        with suppress(EngineRefused, EngineUnavailable):
            await parts.link.take_trace()
        raise
    ended = _CLOCK.now()
    return await parts.link.take_trace(), ended


async def _let_pass(parts: Services, request: Request, seconds: float) -> None:
    """Wait, but neither for a client that has gone nor with an engine or a server that goes."""
    told = _Told()
    parts.sockets.add(told)
    left, died, stops = map(asyncio.create_task, (_left(request), parts.link.gone(), told.wait()))
    try:
        await asyncio.wait((left, died, stops), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if stops.done():
            raise NotReady(
                "the server is stopping, and the trace ends with it: try again later", code="stopping"
            )
        if died.done():
            raise EngineUnavailable(
                "the engine process died while it was traced, and its trace with it; "
                "it is being started, try again soon"
            )
    finally:
        parts.sockets.discard(told)
        for task in (left, died, stops):
            task.cancel()


class _Told:
    """Hears, among the websockets, that the server stops."""

    def __init__(self) -> None:
        self._stops = asyncio.Event()

    async def leave(self) -> None:
        """Take note of it."""
        self._stops.set()

    async def wait(self) -> None:
        """Return when the server stops."""
        await self._stops.wait()


async def _left(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _written(recorded: RecordedSlices, policy: str, started: int, ended: int) -> str:
    """Return a trace as JSON; times are given to a microsecond."""
    # The engine goes on until it hears of the end, so the last slices may lie behind it.
    last = max((one.start + one.elapsed for one in recorded.slices[-1:]), default=ended)
    slices = [
        {
            "at_ms": round((one.start - started) / _MS, 3),
            "took_ms": round(one.elapsed / _MS, 3),
            "core": one.core,
            "query": one.query,
            "class": one.class_name,
            "operators": one.operators,
            "consumed": one.consumed,
            "produced": one.produced,
        }
        for one in recorded.slices
    ]
    trace = {
        "started": format_instant(started // 1000),
        "seconds": round((max(ended, last) - started) / 1e9, 6),
        "policy": policy,
        "slices": slices,
        "left_out": recorded.left_out,
    }
    return SchedulerTrace.model_validate(trace).model_dump_json()
