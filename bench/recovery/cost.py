"""What checkpoints cost while nothing fails: the same load with and without them, in turns."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.load.server_process import cpu_clock, server
from bench.recovery.loaded import LoadedServer
from bench.recovery.workload import IMPORTANT, Load

OFF = "off"


def cost(loads: Sequence[Load], interval: str, steady: tuple[float, float]) -> dict[str, Any]:
    """Run the load with an interval; what is due between two times of the schedule is the steady part.

    What is due after it is a burst, which the server answers as fast as it can.
    """
    with server("--checkpoint-interval", interval) as running:
        loaded = LoadedServer(running, loads)
        begin, end = steady
        with loaded.fed():
            loaded.sleep_until(begin)
            pid = running.engine_pid
            assert pid is not None, "the server has no engine"
            before = _times(pid)
            loaded.sleep_until(end)
            used = _times(pid) - before
            state_mb = loaded.state_mb()
        latencies = loaded.latencies(begin, end)
        return {
            "state_mb": round(state_mb),
            "burst_tuples_per_s": round(burst_rate(loaded, end)),
            "engine_cores": round(float(used[0]) / (end - begin), 4),
            "writer_cores": round(float(used[1]) / (end - begin), 4),
            **{f"important_p{p}_ms": round(float(np.percentile(latencies, p)), 3) for p in (50, 99)},
            "wrong": loaded.wrong(),
        }


def _times(pid: int) -> np.ndarray:
    """Return the processor time of a process, and that of its children that have ended."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[13:15]
    children = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return np.array([time.clock_gettime(cpu_clock(pid)), children])


def burst_rate(loaded: LoadedServer, end: float) -> float:
    """Return the tuples of the burst per second, from their due time to the last answer of all."""
    last, rows = 0, 0
    for load, ids in zip(loaded.loads, loaded.ids, strict=True):
        if load.class_name != IMPORTANT:
            last = max(last, *(int(loaded.received[id_].times.max()) for id_ in ids))
            rows += int((load.schedule.dues >= end * 1e6).sum())
    return rows / (last / 1e9 - loaded.begin - end)
