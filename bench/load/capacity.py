"""The capacity: the highest rate that is sustained."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from bench.load.class_run import deployed, run_classes
from bench.load.schedule import Schedule
from bench.load.server_process import ServerProcess, server

POLICY = "rr"
"""The policy under which the capacity is found."""
SETTLED = 0.05
"""How much less than the offered rate may be read where it counts as sustained."""
_HALVINGS = 4  # the highest rate is found within 5 %
_LEAST_RATE = 10_000.0
_TICK = 0.01


def highest_rate(sustained: Callable[[float], bool], least: float) -> float:
    """Find the highest sustained rate within 5 %, by doubling and halving; `least` if that is too high."""
    low = least
    while sustained(2 * low):
        low *= 2
    high = 2 * low
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if sustained(middle) else (low, middle)
    return low


def class_capacity(seconds: float, policy: str = POLICY) -> float:
    """Find the highest rate (tuples/s) that the queries of a class sustain on a server."""
    with server() as running:
        running.put("/v1/scheduler", {"policy": policy})
        numbers = count()
        return highest_rate(
            lambda rate: _sustained(running, f"capacity_{next(numbers)}", rate, seconds), _LEAST_RATE
        )


def _sustained(running: ServerProcess, stream: str, rate: float, seconds: float) -> bool:
    with deployed(running, "default", stream) as load:
        schedule = Schedule.steady(rate, seconds, _TICK)
        run = run_classes(running, {load: schedule}, {})
    # Between two times of the engine: the server caches its metrics for half a second.
    read, _ = run.rates(load.name)
    return read >= (1 - SETTLED) * rate
