"""Class isolation: an important class beside one that is offered twice the machine's capacity.

A server with its engine process; one websocket per class, in one producing process. The capacity is measured
in the same run: the rate at which the engine processes class N while more rows are waiting.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bench.load.producer import Producer, arrow_message, flood, producer
from bench.load.server_process import ServerProcess, server
from bench.load.subscriber import Q1_ANSWER, Answers, subscription
from bench.outcome import Outcome, text_table
from bench.workload.class_queries import READERS, class_plans
from bench.workload.readings import EVENT_TIME, FIELDS, arrow_readings, stamped

PRIORITIES = {"H": 6, "N": 1}
POLICIES = ("cqc", "abd")
_TICK = {"H": 0.002, "N": 0.01}  # seconds between two frames
_MOST = 20_000  # rows of a frame, when the sender has fallen behind
_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Phase:
    """The measurements of one class in one phase."""

    engine_p99_ms: float | None
    end_to_end_p99_ms: float
    lost: int


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a phase (10)")
    parser.add_argument("--policy", action="append", help="instead of cqc and abd")


def run(options: argparse.Namespace) -> Outcome:
    """Measure class H alone and beside N, under each policy."""
    metrics = {name: _policy(name, options.seconds) for name in options.policy or POLICIES}
    correct = all(metric["lost"] == 0 for metric in metrics.values())
    return Outcome(metrics, _text(metrics), correct)


def _policy(policy: str, seconds: float) -> dict[str, Any]:
    with server() as running:
        running.put("/v1/scheduler", {"policy": policy})
        for name, priority in PRIORITIES.items():
            running.put(f"/v1/classes/{name}", {"name": name, "priority": priority})
        return asyncio.run(_phases(running, seconds))


async def _phases(running: ServerProcess, seconds: float) -> dict[str, Any]:
    capacity = await _capacity(running, seconds / 2)
    with _Classes(running, "alone", ("H",)) as classes:
        alone = (await classes.feed({"H": 0.1 * capacity}, seconds))["H"]
    with _Classes(running, "loaded", ("H", "N")) as classes:
        busy = _busy(running)
        rates = {"H": 0.1 * capacity, "N": 2 * capacity}
        loaded = await classes.feed(rates, seconds, lambda: busy.update(_busy_since(running, busy)))
    total = sum(busy.values())
    return {
        "capacity_tuples_per_s": round(capacity),
        "alone_p99_ms": alone.engine_p99_ms,
        "loaded_p99_ms": loaded["H"].engine_p99_ms,
        "ratio": round((loaded["H"].engine_p99_ms or 0) / (alone.engine_p99_ms or 1), 2),
        "end_to_end_alone_p99_ms": alone.end_to_end_p99_ms,
        "end_to_end_loaded_p99_ms": loaded["H"].end_to_end_p99_ms,
        "lost": alone.lost + loaded["H"].lost + loaded["N"].lost,
        "share": round(busy["N"] / total, 3),
        "guaranteed_share": round(PRIORITIES["N"] / sum(PRIORITIES.values()), 3),
    }


def _busy(running: ServerProcess) -> dict[str, float]:
    classes = running.http.get("/v1/stats").json()["classes"]
    return {name: classes[name]["busy_s"] for name in PRIORITIES}


def _busy_since(running: ServerProcess, before: dict[str, float]) -> dict[str, float]:
    return {name: spent - before[name] for name, spent in _busy(running).items()}


async def _capacity(running: ServerProcess, seconds: float) -> float:
    """Return how many tuples of a stream the engine processes per second while more are waiting."""
    with _Classes(running, "most", ("N",)) as classes:
        batch = _batch(5_000, seed=9)
        async with producer(running.websocket_url, "most", [classes.stream("N")]) as feed:
            flooding = asyncio.create_task(flood(feed, classes.stream("N"), batch))
            await asyncio.sleep(seconds / 4)  # until there is a backlog
            rows, begin = classes.rows_in("N"), time.perf_counter()
            await asyncio.sleep(seconds)
            taken = (classes.rows_in("N") - rows) / (time.perf_counter() - begin)
            flooding.cancel()
    return taken / READERS


class _Classes:
    """Classes with fresh streams and queries, gone again at the end."""

    def __init__(self, running: ServerProcess, phase: str, names: tuple[str, ...]) -> None:
        self._running = running
        self._phase = phase
        self._ids: dict[str, list[object]] = {}
        for name in names:
            spec = {"name": self.stream(name), "fields": FIELDS, "event_time": EVENT_TIME}
            running.post("/v1/streams", spec)
            plans = class_plans(self.stream(name))
            self._ids[name] = [
                running.post("/v1/queries", {"name": f"{phase}_{name}_{n}", "class": name, "plan": plan})[
                    "id"
                ]
                for n, plan in enumerate(plans)
            ]

    def __enter__(self) -> _Classes:
        return self

    def __exit__(self, *reason: object) -> None:
        for ids in self._ids.values():
            for id_ in ids:
                self._running.http.delete(f"/v1/queries/{id_}").raise_for_status()

    def stream(self, name: str) -> str:
        """Return the name of a class's stream."""
        return f"{self._phase}_{name}"

    def rows_in(self, name: str) -> int:
        """Return the number of rows that all queries of a class have read."""
        return int(self._running.http.get("/v1/stats").json()["classes"][name]["rows_in"])

    async def feed(
        self, rates: dict[str, float], seconds: float, when_fed: Any = lambda: None
    ) -> dict[str, Phase]:
        """Feed the classes at these rates, wait for all answers, and return the measurements by class."""
        before = {name: self.rows_in(name) for name in rates}
        url = self._running.websocket_url
        answers = Answers(Q1_ANSWER)
        batches = {name: _batch(int(rate * seconds), seed=4) for name, rate in rates.items()}
        expected = _selected(batches["H"])
        streams = [self.stream(name) for name in rates]
        async with (
            producer(url, f"{self._phase}", streams) as feed,
            subscription(url, self._ids["H"][0]) as answering,
        ):
            collecting = asyncio.create_task(answers.collect(answering, expected))
            begin = time.time() + 0.1
            sent = await asyncio.gather(
                *(self._pace(feed, name, batches[name], begin, seconds) for name in rates)
            )
            when_fed()
            await asyncio.wait_for(collecting, _PATIENCE)
        rows = dict(zip(rates, sent, strict=True))
        taken = (answers.receipt_times() - answers.column("ts") * 1000) / 1e6
        return {
            name: Phase(
                self._engine_p99(name) if name == "H" else None,
                round(float(np.percentile(taken, 99)), 2) if name == "H" else 0.0,
                await self._lost(name, before[name], rows[name]),
            )
            for name in rates
        }

    async def _pace(
        self, feed: Producer, name: str, batch: pa.RecordBatch, begin: float, seconds: float
    ) -> int:
        """Send rows when they are due, stamped with their due times; returns their number."""
        size = batch.num_rows
        random = np.random.default_rng(7)
        due = begin + np.sort(random.uniform(0, seconds, size))
        batch = stamped(batch, due * 1e6)
        stream, sent, sequence = self.stream(name), 0, 0
        while sent < size:
            ready = min(int(np.searchsorted(due, time.time(), "right")), sent + _MOST)
            if ready > sent:
                sequence += 1
                message = arrow_message(stream, sequence, batch.slice(sent, ready - sent))
                await feed.send(stream, sequence, message)
                sent = ready
            await asyncio.sleep(_TICK[name])
        await feed.all_acked(stream, sequence)
        return sent

    def _engine_p99(self, name: str) -> float | None:
        metric = self._running.http.get("/v1/stats").json()["classes"][name]["latency_ms"]["p99"]
        return None if metric is None else round(metric, 3)

    async def _lost(self, name: str, before: int, sent: int) -> int:
        """Return how many rows are missing after the class had time to process its backlog."""
        begin = time.perf_counter()
        while (missing := before + sent * READERS - self.rows_in(name)) > 0:
            if time.perf_counter() - begin > _PATIENCE:
                break
            await asyncio.sleep(0.2)
        return missing


def _batch(size: int, seed: int) -> pa.RecordBatch:
    return arrow_readings(max(size, 1), seed)


def _selected(batch: pa.RecordBatch) -> int:
    hot = batch.column("temperature").to_numpy() > 30
    return int((hot & (batch.column("humidity").to_numpy() < 30)).sum())


def _text(metrics: dict[str, dict[str, Any]]) -> str:
    keys = list(next(iter(metrics.values())))
    rows = [(key, *(str(metric[key]) for metric in metrics.values())) for key in keys]
    return text_table(("metric", *metrics), rows)
