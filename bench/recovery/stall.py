"""How long one query with much state holds others up: at checkpoints, and at commands to it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bench.load.schedule import Schedule
from bench.load.server_process import server
from bench.recovery.loaded import LoadedServer
from bench.recovery.workload import IMPORTANT, ROW_BYTES, Load, joins, selects

_FILL_RATE = 200_000.0
_RATE, _TICK, _IMPORTANT_RATE, _IMPORTANT_TICK = 1_000.0, 0.02, 1_000.0, 0.002
_INTERVAL = "1s"
_SETTLE = 3.0
"""Seconds for the rows that state was built up with to be read."""


def stall(large_mb: float, seconds: float) -> dict[str, Any]:
    """Return the latency of the important class without checkpoints, with them, and with commands, too."""
    return {
        "without": _measure(large_mb, seconds, "off", commands=False),
        "checkpoints": _measure(large_mb, seconds, _INTERVAL, commands=False),
        "commands": _measure(large_mb, seconds, _INTERVAL, commands=True),
    }


def _measure(large_mb: float, seconds: float, interval: str, *, commands: bool) -> dict[str, Any]:
    fill_s = max(large_mb * 1e6 / ROW_BYTES / _FILL_RATE, 0.5)
    begin = fill_s + _SETTLE
    pieces = ((_FILL_RATE, fill_s), (_RATE, _SETTLE + seconds))
    important = Schedule.steady(_IMPORTANT_RATE, begin + seconds, _IMPORTANT_TICK, seed=1)
    loads = [Load(IMPORTANT, IMPORTANT, important, selects(IMPORTANT))]
    # Its answers are not received: those of a query that was paused depend on when that was.
    large = Load("large", "default", Schedule(pieces, _TICK, seed=2), joins("large", 1))
    with server("--checkpoint-interval", interval) as running:
        loaded = LoadedServer(running, loads, unread=[large])
        times = []
        with loaded.fed():
            loaded.sleep_until(begin)
            state_mb = loaded.state_mb()
            id_ = loaded.ids[1][0]
            while commands and time.time() < loaded.begin + begin + seconds - 1:
                for state in ("paused", "running"):
                    at = time.monotonic()
                    answer = running.http.patch(f"/v1/queries/{id_}", json={"state": state})
                    answer.raise_for_status()
                    times.append(time.monotonic() - at)
            loaded.sleep_until(begin + seconds)
            slice_ms = loaded.engine()["slice_ms"]
        latencies = loaded.latencies(begin, begin + seconds)
        return {
            "state_mb": round(state_mb),
            **{f"p{p}_ms": round(float(np.percentile(latencies, p)), 3) for p in (50, 99)},
            "longest_ms": round(float(latencies.max()), 3),
            "longest_slice_ms": slice_ms["max"],
            "commands": len(times),
            "command_ms": round(1000 * float(np.median(times)), 1) if times else None,
            "wrong": loaded.wrong(),
        }
