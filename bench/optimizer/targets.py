"""Targets under bursts: a critical class beside one whose load arrives in bursts, with and without
optimizer.

Both runs start alike: a policy without classes (`fifo`), three critical queries with a latency target, and
many queries of a class that allows loss. Its stream is fed at a share of the engine's capacity, which is
measured in the same run, and at four times that in bursts. A period of one second counts as kept if the rows
that fell due in it were answered within the target, for each critical query, as seen by a subscriber; the
optimizer's own metrics are not used.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bench.load.producer import Producer, arrow_message, flood, producer
from bench.load.server_process import ServerProcess, server
from bench.load.subscriber import Q1_ANSWER, Answers, subscription
from bench.outcome import Outcome, text_table
from bench.workload.class_queries import READERS, class_queries
from bench.workload.readings import EVENT_TIME, FIELDS, arrow_readings, stamped
from mavstream_feeder.pacing.arrivals import PoissonArrivals
from mavstream_feeder.pacing.rates import Piece, Rate

PRIORITIES = {"critical": 6, "low": 1}
POLICY = "fifo"
TARGET_MS = 1000.0
PERCENTILE = 95
TOLERANCE = 0.1
MAX_LOSS = "50%"
_CRITICAL_SHARE, _LOW_SHARE, _BURST = 0.05, 0.35, 4
_BURST_S, _EVERY_S, _FIRST_S = 30.0, 60.0, 20.0
_BASE_ROWS = 200_000
_TICK = {"critical": 0.002, "low": 0.01}  # seconds between two frames
_MOST = 20_000  # rows of a frame, when the sender has fallen behind
_PATIENCE = 180.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seconds", type=float, default=180.0, help="length of a run (180)")
    parser.add_argument("--policy", default=POLICY, help=f"that both runs start with ({POLICY})")


def run(options: argparse.Namespace) -> Outcome:
    """Run without the optimizer, then with it."""
    capacity = _capacity(options.policy)
    off = _run(options, capacity, optimizing=False)
    on = _run(options, capacity, optimizing=True)
    metrics = {"on": on, "off": off, "capacity_tuples_per_s": round(capacity)}
    correct = all(metric["lost"] == 0 for metric in (on, off))
    return Outcome(metrics, _text(metrics), correct)


def _capacity(policy: str, seconds: float = 5.0) -> float:
    """Return how many tuples of the low stream the engine processes per second while more are waiting."""
    with server() as running:
        running.put("/v1/scheduler", {"policy": policy})
        _classes(running)
        _low_queries(running)
        return asyncio.run(_flooded(running, seconds))


async def _flooded(running: ServerProcess, seconds: float) -> float:
    async with producer(running.websocket_url, "flood", ["low"]) as feed:
        flooding = asyncio.create_task(flood(feed, "low", arrow_readings(5_000, seed=9)))
        await asyncio.sleep(seconds / 4)  # until there is a backlog
        rows, begin = _rows_in(running, "low"), time.perf_counter()
        await asyncio.sleep(seconds)
        taken = (_rows_in(running, "low") - rows) / (time.perf_counter() - begin)
        flooding.cancel()
    return taken / READERS


def _run(options: argparse.Namespace, capacity: float, *, optimizing: bool) -> dict[str, Any]:
    with server() as running:
        running.put("/v1/scheduler", {"policy": options.policy})
        running.put("/v1/optimizer", {"enabled": optimizing})
        _classes(running)
        low, critical = _low_queries(running), _critical_queries(running)
        return asyncio.run(_fed(running, low, critical, capacity, options.seconds))


def _classes(running: ServerProcess) -> None:
    for name, priority in PRIORITIES.items():
        running.put(f"/v1/classes/{name}", {"name": name, "priority": priority})
        running.post("/v1/streams", {"name": name, "fields": FIELDS, "event_time": EVENT_TIME})


def _low_queries(running: ServerProcess) -> list[object]:
    return [
        running.post(
            "/v1/queries",
            {"name": f"low_{number}", "class": "low", "plan": plan, "qos": {"max_loss": MAX_LOSS}},
        )["id"]
        for number, plan in enumerate(query.plan for query in class_queries("low"))
    ]


def _critical_queries(running: ServerProcess) -> list[object]:
    qos = {"latency": {f"p{PERCENTILE}": f"{TARGET_MS:g}ms", "tolerance": f"{TOLERANCE:.0%}"}}
    return [
        running.post("/v1/queries", {"name": f"critical_{n}", "class": "critical", "plan": plan, "qos": qos})[
            "id"
        ]
        for n, plan in enumerate(query.plan for query in class_queries("critical")[:3])
    ]


async def _fed(
    running: ServerProcess, low: list[object], critical: list[object], capacity: float, seconds: float
) -> dict[str, Any]:
    url = running.websocket_url
    answers = [Answers(Q1_ANSWER) for _ in critical]
    rates = {"critical": _steady(_CRITICAL_SHARE * capacity), "low": _bursts(_LOW_SHARE * capacity, seconds)}
    begin = time.time() + 0.5
    async with producer(url, "targets", list(rates)) as feed:
        subscribed = [
            asyncio.create_task(_collect(url, query, into))
            for query, into in zip(critical, answers, strict=True)
        ]
        feeding = [
            asyncio.create_task(_pace(feed, name, PoissonArrivals(rate, begin, 1, name), begin + seconds))
            for name, rate in rates.items()
        ]
        sent = dict(zip(rates, [await one for one in feeding], strict=True))
        expected = [_selected(sent["critical"], 30 + n) for n in range(len(critical))]
        missing = await _drained(running, answers, expected, sent["low"], low)
        for task in subscribed:
            task.cancel()
    decisions = running.http.get("/v1/optimizer/decisions").json()
    late = _late_periods(answers, begin, seconds)
    return {
        "kept": round(1 - late.mean(), 4),
        "late_periods": np.flatnonzero(late).tolist(),
        "shed": _shed(running, low),
        "actions": len(decisions["items"]),
        "decisions": [_told(one) for one in decisions["items"]],
        "lost": missing,
        "rows": {name: int(rows) for name, rows in sent.items()},
    }


def _steady(rate: float) -> Rate:
    return Rate((Piece(rate, float("inf")),))


def _bursts(rate: float, seconds: float) -> Rate:
    pieces, at = [Piece(rate, _FIRST_S)], _FIRST_S
    while at < seconds:
        pieces += [Piece(_BURST * rate, _BURST_S), Piece(rate, _EVERY_S - _BURST_S)]
        at += _EVERY_S
    return Rate((*pieces, Piece(rate, float("inf"))))


async def _pace(feed: Producer, stream: str, arrivals: PoissonArrivals, until: float) -> int:
    """Send rows when they are due, stamped with their due times; returns their number."""
    base, sent, sequence = arrow_readings(_BASE_ROWS, seed=4), 0, 0
    while True:
        now = min(time.time(), until)
        due = arrivals.take(now, _MOST)
        if len(due):
            sequence += 1
            rows = _cycled(base, sent, len(due))
            await feed.send(stream, sequence, arrow_message(stream, sequence, stamped(rows, due * 1e6)))
            sent += len(due)
        elif now >= until:
            break
        await asyncio.sleep(_TICK[stream])
    await feed.all_acked(stream, sequence)
    return sent


def _cycled(base: pa.RecordBatch, start: int, size: int) -> pa.RecordBatch:
    offset = start % base.num_rows
    first = base.slice(offset, size)
    if first.num_rows == size:
        return first
    return pa.concat_batches([first, base.slice(0, size - first.num_rows)])


async def _collect(url: str, query: object, answers: Answers) -> None:
    async with subscription(url, query) as socket:
        await answers.collect(socket, 1 << 62)


async def _drained(
    running: ServerProcess, answers: list[Answers], expected: list[int], low: int, queries: Sequence[object]
) -> int:
    """Wait until all is answered; returns how many critical answers and low rows are missing."""
    begin = time.perf_counter()
    while True:
        missing = sum(expected) - sum(one.rows for one in answers)
        missing += low * READERS - _rows_in(running, "low") - _shed(running, queries)
        if not missing or time.perf_counter() - begin > _PATIENCE:
            return missing
        await asyncio.sleep(0.2)


def _late_periods(answers: list[Answers], begin: float, seconds: float) -> np.ndarray:
    late = np.zeros(int(seconds), dtype=bool)
    for one in answers:
        due_ns = one.column("ts") * 1000
        taken = (one.receipt_times() - due_ns) / 1e6
        periods = (due_ns / 1e9 - begin).astype(int)
        for period in range(len(late)):
            inside = taken[periods == period]
            if len(inside) and np.percentile(inside, PERCENTILE) > TARGET_MS * (1 + TOLERANCE):
                late[period] = True
    return late


def _rows_in(running: ServerProcess, name: str) -> int:
    return int(running.http.get("/v1/stats").json()["classes"][name]["rows_in"])


def _shed(running: ServerProcess, queries: Sequence[object]) -> int:
    """Return how many rows these queries have shed in all."""
    reports = (running.http.get(f"/v1/queries/{query}/qos").json() for query in queries)
    return sum(int(report["shed"]["rows"]) for report in reports)


def _told(decision: dict[str, Any]) -> str:
    return f"{decision['at'][11:19]} {decision['what']}: {decision['outcome']}"


def _selected(rows: int, least: int) -> int:
    """Return how many of a number of rows a critical query answers."""
    base = arrow_readings(_BASE_ROWS, seed=4)
    hot = (base["temperature"].to_numpy() > least) & (base["humidity"].to_numpy() < 30)
    rounds, rest = divmod(rows, len(hot))
    return int(rounds * hot.sum() + hot[:rest].sum())


def _text(metrics: dict[str, Any]) -> str:
    keys = ("kept", "shed", "actions", "lost")
    rows = [(key, *(str(metrics[run][key]) for run in ("off", "on"))) for key in keys]
    return "\n".join([text_table(("metric", "off", "on"), rows), *metrics["on"]["decisions"]])
