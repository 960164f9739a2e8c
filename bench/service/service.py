"""The service benchmark: end to end over websockets on loopback, server and engine as real processes."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bench.load.echo import echo_latencies
from bench.load.producer import arrow_message, columns_message, producer
from bench.load.server_process import ServerProcess, server
from bench.load.subscriber import Q1_ANSWER, Answers, subscription
from bench.outcome import Outcome, shown, text_table
from bench.service.many_queries import many_queries
from bench.workload.queries import Q1
from bench.workload.readings import EVENT_TIME, FIELDS, arrow_readings, stamped
from bench.workload.thresholds import rule_plan

FRAME = 1000
RATE = 10_000
IDLE_QUERIES = 100
_STREAM = {
    "name": "readings",
    "fields": FIELDS,
    "event_time": EVENT_TIME,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the data and of the time (default: 1)"
    )
    parser.add_argument("--skip-many", action="store_true", help="leave out the runs with many queries")


def run(options: argparse.Namespace) -> Outcome:
    """Measure everything; the answers of timed runs are checked first."""
    metrics: dict[str, Any] = {}
    scale = options.scale
    with server() as running:
        metrics["ready_s"] = round(running.ready_s, 2)
        metrics["rss_mb"] = round(running.rss_mb(), 1)
    correct = True
    for name, size in (("arrow", int(1_000_000 * scale)), ("json_columns", int(300_000 * scale))):
        with server() as running:
            rate, right = asyncio.run(_throughput(running, name, max(size, FRAME)))
            metrics[f"{name}_tuples_per_s"] = round(rate)
            correct &= right
    with server() as running:
        metrics |= asyncio.run(_latency(running, max(10 * scale, 1.0)))
    with server() as running:
        metrics["idle_cpu"] = _idle_cpu(running, max(10 * scale, 2.0))
    if not options.skip_many:
        metrics["many_queries"] = {
            "300_on_30": many_queries(300, 30, 500, max(15 * scale, 2.0)),
            "3000_on_100": many_queries(int(3000 * min(scale, 1)) or 300, 100, 10, max(15 * scale, 2.0)),
            "3738_rules_on_1": many_queries(
                int(3738 * min(scale, 1)) or 300, 1, 500, max(15 * scale, 2.0), rule_plan
            ),
        }
    metrics["correct"] = correct
    return Outcome(metrics, _text(metrics), correct)


def _register(running: ServerProcess, stream: str = "readings", name: str = "q1") -> object:
    nodes = {**Q1.nodes, "in": {"op": "source", "stream": stream}}
    return running.post("/v1/queries", {"name": name, "plan": {"root": "answer", "nodes": nodes}})["id"]


def _batches(size: int) -> Iterator[pa.RecordBatch]:
    batch = arrow_readings(size, seed=1)
    for start in range(0, size, FRAME):
        yield batch.slice(start, FRAME)


async def _throughput(running: ServerProcess, form: str, size: int) -> tuple[float, bool]:
    """Feed as fast as credit allows; the time ends when all rows are acked and all answers received."""
    running.post("/v1/streams", _STREAM)
    query = _register(running)
    batches = list(_batches(size))
    if form == "arrow":
        messages: list[Any] = [arrow_message("readings", n, b) for n, b in enumerate(batches, 1)]
    else:
        messages = [columns_message("readings", n, _plain(b)) for n, b in enumerate(batches, 1)]
    table = pa.Table.from_batches(batches)
    hot = (table["temperature"].to_numpy() > 30) & (table["humidity"].to_numpy() < 30)
    expected = table["ts"].cast(pa.int64()).to_numpy()[hot]
    answers = Answers(Q1_ANSWER)
    async with (
        producer(running.websocket_url, "bench", ["readings"]) as feed,
        subscription(running.websocket_url, query) as answering,
    ):
        collecting = asyncio.create_task(answers.collect(answering, len(expected)))
        begin = time.perf_counter()
        for sequence, message in enumerate(messages, 1):
            await feed.send("readings", sequence, message)
        await feed.all_acked("readings", len(messages))
        await asyncio.wait_for(collecting, 120)
        elapsed = time.perf_counter() - begin
    return size / elapsed, bool(np.array_equal(answers.column("ts"), expected))


def _plain(batch: pa.RecordBatch) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = batch.to_pydict()
    columns["ts"] = batch.column("ts").cast(pa.int64()).to_pylist()
    return columns


async def _latency(running: ServerProcess, seconds: float) -> dict[str, Any]:
    """Feed Poisson arrivals at 10,000/s stamped with their due times; count from due time to receipt."""
    running.post("/v1/streams", _STREAM)
    query = _register(running)
    size = int(RATE * seconds)
    random = np.random.default_rng(2)
    batch = arrow_readings(size, seed=2)
    offsets = np.cumsum(random.exponential(1 / RATE, size))
    hot = (batch["temperature"].to_numpy() > 30) & (batch["humidity"].to_numpy() < 30)
    answers = Answers(Q1_ANSWER)
    async with (
        producer(running.websocket_url, "bench", ["readings"]) as feed,
        subscription(running.websocket_url, query) as answering,
    ):
        collecting = asyncio.create_task(answers.collect(answering, int(hot.sum())))
        begin = time.time() + 0.2
        due = ((begin + offsets) * 1e6).astype(np.int64)
        batch = stamped(batch, due)
        sent = sequence = 0
        while sent < size:
            now = int(time.time() * 1e6)
            ready = int(np.searchsorted(due, now, "right"))
            if ready > sent:
                sequence += 1
                message = arrow_message("readings", sequence, batch.slice(sent, ready - sent))
                await feed.send("readings", sequence, message)
                sent = ready
            await asyncio.sleep(0.001)
        await asyncio.wait_for(collecting, 60)
    taken = (answers.receipt_times() - answers.column("ts") * 1000) / 1e6
    engine = running.http.get(f"/v1/queries/{query}").json()["latency_ms"] or {}
    echo = await echo_latencies(int(seconds * 500), 400, 0.002)
    return {
        "latency_ms": _percentiles(taken),
        "echo_ms": _percentiles(echo),
        "engine_latency_ms": {"p50": engine.get("p50"), "p99": engine.get("p99")},
    }


def _percentiles(values: np.ndarray) -> dict[str, float]:
    return {f"p{p}": round(float(np.percentile(values, p)), 3) for p in (50, 99)}


def _idle_cpu(running: ServerProcess, seconds: float) -> float:
    """Return the share of a core that server and engine use with queries that have nothing to do."""
    running.post("/v1/streams", _STREAM)
    for number in range(IDLE_QUERIES):
        _register(running, name=f"q{number}")
    time.sleep(1)  # excludes the after-effects of registration
    before, begin = running.cpu_s(), time.perf_counter()
    time.sleep(seconds)
    return round((running.cpu_s() - before) / (time.perf_counter() - begin), 4)


def _text(metrics: dict[str, Any]) -> str:
    rows = [
        ["Arrow, tuples/s", shown(metrics["arrow_tuples_per_s"], ",")],
        ["JSON columns, tuples/s", shown(metrics["json_columns_tuples_per_s"], ",")],
    ]
    rows += [
        [f"{name} p50 / p99", f"{metrics[name]['p50']} / {metrics[name]['p99']}"]
        for name in ("latency_ms", "echo_ms", "engine_latency_ms")
    ]
    rows += [
        ["idle, share of a core", shown(metrics["idle_cpu"], ".2%")],
        ["ready after, s", shown(metrics["ready_s"], ".2f")],
        ["resident, MB", shown(metrics["rss_mb"], ".0f")],
    ]
    for name, many in metrics.get("many_queries", {}).items():
        rows.append([f"{name}: p95 ms, keeps up", f"{many['p95_ms']}, {many['keeps_up']}"])
    return text_table(["end to end", "metric"], rows)
