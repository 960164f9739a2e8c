"""Routes of the scheduler: policy, options and traces."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from mavstream_protocol.instants import format_instant
from mavstream_protocol.scheduling import LONGEST_TRACE, SchedulerSettings, SchedulerTrace
from mavstream_protocol.tokens import Role
from mavstream_protocol.wire.feed import CloseCode
from mavstream_server.api.auth import require
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts, Services
from mavstream_server.core.clock import SystemClock
from mavstream_server.core.errors import Conflict, NotReady
from mavstream_server.core.principal import Principal
from mavstream_server.engine.slices.trace import RecordedSlices
from mavstream_server.queries.views.chain import reading
from mavstream_server.supervisor.engine_link import EngineRefused, EngineUnavailable

router = APIRouter(prefix="/v1/scheduler", tags=["scheduling"])

MOST_SLICES = 50_000
"""Maximum number of slices in a trace. Even for plans of 256 operators, the maximum, they fit into half of
a control channel message. The engine pauses while it hands them over, for about 4 us each.
"""

_CLOCK = SystemClock()
_MS = 1e6  # nanoseconds per millisecond

Seconds = Annotated[
    float,
    Query(
        gt=0,
        le=LONGEST_TRACE,
        allow_inf_nan=False,
        description="Duration of the trace, in seconds",
        examples=[0.2],
    ),
]


@router.get("", dependencies=[Depends(require())], responses=documented())
async def show_scheduler(parts: Parts) -> SchedulerSettings:
    """Get the current scheduling policy and its options."""
    return parts.scheduler.current


@router.put("", dependencies=[Depends(require(Role.ADMIN))], responses=documented(409))
async def set_scheduler(chosen: SchedulerSettings, parts: Parts) -> SchedulerSettings:
    """Switch the scheduling policy. Takes effect at once; queued rows are retained.

    Ends the probation of the optimizer's current action. The policy stays until the optimizer, if enabled,
    finds a reason to try another one.
    """
    await parts.optimizer.overrule(lambda: parts.scheduler.choose(chosen), "the policy was chosen by hand")
    return chosen


@router.get(
    "/trace", dependencies=[Depends(require())], responses=documented(409), response_model=SchedulerTrace
)
async def trace_scheduler(request: Request, parts: Parts, seconds: Seconds = 2.0) -> Response:
    """Record the scheduler's slices for some seconds and return them: operators, rows and times.

    Only one trace can be recorded at a time.
    """
    await request.body()  # after the body, `receive` reports the disconnect of the client
    link = parts.link
    if link.tracing.locked():
        raise Conflict(
            "the scheduler is being traced already, and there is one trace at a time: "
            f"try again when that one has ended, {LONGEST_TRACE:g} s from now at the latest",
            code="trace_running",
        )
    async with link.tracing:
        policy = (await link.engine_metrics()).policy
        started = _CLOCK.now()
        recorded, ended = await _record(parts, request, seconds)
    # In a thread: encoding thousands of slices takes a while, and producers wait for their acks.
    reads = reading({one.query for one in recorded.slices}, parts.queries.registry)
    answer = await asyncio.to_thread(_trace_json, recorded, policy, started, ended, reads)
    return Response(answer, media_type="application/json")


async def _record(parts: Services, request: Request, seconds: float) -> tuple[RecordedSlices, int]:
    """Record a trace and return it with its end time; recording always ends with this call."""
    try:
        await parts.link.start_trace(MOST_SLICES)
        await _wait_while_recording(parts, request, seconds)
    except BaseException:
        with suppress(EngineRefused, EngineUnavailable):
            await parts.link.take_trace()
        raise
    ended = _CLOCK.now()
    return await parts.link.take_trace(), ended


async def _wait_while_recording(parts: Services, request: Request, seconds: float) -> None:
    """Wait, unless the client disconnects or the engine or the server stops."""
    stop_listener = _StopListener(parts.auth.identify(request))
    parts.sockets.add(stop_listener)
    left, died, stops = map(
        asyncio.create_task, (_disconnected(request), parts.link.gone(), stop_listener.wait())
    )
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
        parts.sockets.discard(stop_listener)
        for task in (left, died, stops):
            task.cancel()


class _StopListener:
    """Registered among the websockets to be notified when the server stops."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self._stops = asyncio.Event()

    async def leave(self, code: CloseCode, reason: str) -> None:
        """Notify the waiter that the server stops."""
        self._stops.set()

    async def wait(self) -> None:
        """Return when the server stops."""
        await self._stops.wait()


async def _disconnected(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _trace_json(
    recorded: RecordedSlices,
    policy: str,
    started: int,
    ended: int,
    reads: Mapping[str, Sequence[str]],
) -> str:
    """Return a trace as JSON; times have a resolution of one microsecond."""
    # The engine records until it receives the command to end, so the last slices may exceed `ended`.
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
        "reads": reads,
    }
    return SchedulerTrace.model_validate(trace).model_dump_json()
