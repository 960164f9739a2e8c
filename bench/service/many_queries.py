"""Many queries on many streams: whether the service keeps up, and at which latency."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from bench.load.producer import Producer, arrow_message, producer
from bench.load.server_process import ServerProcess, server
from bench.workload.readings import EVENT_TIME, FIELDS, arrow_readings
from bench.workload.thresholds import range_plan

_WAKE_UP = 0.05  # seconds between two frames of a stream
_PATIENCE = 30.0

PlanOf = Callable[[int, str], dict[str, Any]]
"""Returns the plan of a query by its number, on a stream."""


def many_queries(
    queries: int, streams: int, rate: int, seconds: float, plan: PlanOf = range_plan
) -> dict[str, Any]:
    """Register queries spread over streams, feed each stream at a rate, and return the server's metrics."""
    with server() as running:
        names = [f"s{number}" for number in range(streams)]
        for name in names:
            running.post("/v1/streams", {"name": name, "fields": FIELDS, "event_time": EVENT_TIME})
        taken = [_register(running, plan, number, names[number % streams]) for number in range(queries)]
        sent = asyncio.run(_feed(running, names, rate, seconds))
        begin = time.perf_counter()
        expected = sent * (queries // streams)
        while (stats := running.http.get("/v1/stats").json()["classes"]["default"])["rows_in"] < expected:
            if time.perf_counter() - begin > _PATIENCE:
                break
        behind = time.perf_counter() - begin
    return {
        "queries": queries,
        "streams": streams,
        "tuples_per_s_per_stream": rate,
        "keeps_up": stats["rows_in"] >= expected and behind < 2.0,
        "behind_s": round(behind, 2),
        "p50_ms": stats["latency_ms"]["p50"],
        "p95_ms": stats["latency_ms"]["p95"],
        "register_100th_ms": round(1000 * min(taken[90:110]), 2),
        "register_last_ms": round(1000 * min(taken[-20:]), 2),
    }


def _register(running: ServerProcess, plan: PlanOf, number: int, stream: str) -> float:
    begin = time.perf_counter()
    running.post("/v1/queries", {"name": f"q{number}", "plan": plan(number, stream)})
    return time.perf_counter() - begin


async def _feed(running: ServerProcess, names: list[str], rate: int, seconds: float) -> int:
    """Feed all streams over one websocket; returns the total number of tuples."""
    per_frame = max(1, int(rate * _WAKE_UP))
    pause = per_frame / rate
    rounds = int(seconds / pause)
    batch = arrow_readings(per_frame * rounds, seed=3)
    async with producer(running.websocket_url, "bench", names) as feed:
        begin = time.perf_counter()
        for number in range(rounds):
            part = batch.slice(number * per_frame, per_frame)
            await asyncio.sleep(max(0.0, begin + number * pause - time.perf_counter()))
            await _round(feed, names, number + 1, part)
        for name in names:
            await feed.all_acked(name, rounds)
    return per_frame * rounds * len(names)


async def _round(feed: Producer, names: list[str], sequence: int, part: pa.RecordBatch) -> None:
    for name in names:
        await feed.send(name, sequence, arrow_message(name, sequence, part))
