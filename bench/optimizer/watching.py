"""Cost of monitoring targets: the same queries with targets and without, under the same light load."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import numpy as np

from bench.load.producer import arrow_message, producer
from bench.load.server_process import ServerProcess, server
from bench.outcome import Outcome, text_table
from bench.workload.readings import EVENT_TIME, FIELDS, arrow_readings, stamped

_ROWS, _TICK = 20, 1.0  # seconds between two frames: most of the load is to be the watching
_TARGETS: dict[str, dict[str, Any]] = {
    "without": {},
    "with": {"latency": {"p95": "5s"}, "memory": {"at_most": "1GB"}},
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--queries", type=int, default=300, help="how many (300)")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured of each kind (20)")


def run(options: argparse.Namespace) -> Outcome:
    """Measure the processor time of API process and engine together, in shares of a core."""
    used = {name: _used(qos, options) for name, qos in _TARGETS.items()}
    cost = {name: round(used[name] - used["without"], 4) for name in _TARGETS if name != "without"}
    metrics = {"queries": options.queries, "used": used, "cost": cost}
    rows = [(name, f"{used[name]:.2%}", f"{cost.get(name, 0):.2%}") for name in _TARGETS]
    return Outcome(metrics, text_table(("targets", "of a core", "for watching"), rows))


def _used(qos: dict[str, Any], options: argparse.Namespace) -> float:
    with server() as running:
        # Monitoring only: actions of the optimizer are not part of this benchmark.
        running.put("/v1/optimizer", {"enabled": False})
        running.post("/v1/streams", {"name": "readings", "fields": FIELDS, "event_time": EVENT_TIME})
        for number in range(options.queries):
            where = f"temperature > {number % 40} AND humidity < {number % 97}"
            nodes = {
                "in": {"op": "source", "stream": "readings"},
                "hot": {"op": "select", "input": "in", "where": where},
            }
            plan = {"root": "hot", "nodes": nodes}
            running.post("/v1/queries", {"name": f"q{number}", "plan": plan, "qos": qos})
        return asyncio.run(_fed(running, options.seconds))


async def _fed(running: ServerProcess, seconds: float) -> float:
    """Feed a little for a while; returns the share of a core that the server used, after some seconds."""
    batch = arrow_readings(_ROWS, 1)
    async with producer(running.websocket_url, "watching", ["readings"]) as feed:
        warm = int(3 / _TICK)
        before, begin = 0.0, 0.0
        for sequence in range(1, warm + int(seconds / _TICK) + 1):
            now = np.full(_ROWS, time.time() * 1e6)
            await feed.send("readings", sequence, arrow_message("readings", sequence, stamped(batch, now)))
            await asyncio.sleep(_TICK)
            if sequence == warm:
                before, begin = running.cpu_s(), time.perf_counter()
        return round((running.cpu_s() - before) / (time.perf_counter() - begin), 4)
