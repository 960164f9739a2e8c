"""Queueing theory: mean waiting times for a server that is busy part of the time.

Rates are per second, times in seconds, and utilisations are shares of the server's time. Unbounded waits are
`inf`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, log
from typing import NamedTuple


class Stream(NamedTuple):
    """A Poisson stream of jobs: arrival rate and service time."""

    rate: float
    mean: float
    second_moment: float
    """Second moment of the service time: the squared mean if constant, twice that if exponential."""

    @property
    def utilisation(self) -> float:
        """Share of the server's time that the jobs take."""
        return self.rate * self.mean


def residual(streams: Iterable[Stream]) -> float:
    """Return the mean residual service time that an arrival finds."""
    return sum(stream.rate * stream.second_moment for stream in streams) / 2


def wait_behind(left: float, ahead: float, own: float) -> float:
    """Return the mean wait of jobs of utilisation `own` behind jobs of utilisation `ahead`.

    `left` is the residual service time. Without jobs ahead this is the Pollaczek-Khinchine formula; with all
    jobs of higher priority ahead it is Cobham's formula.
    """
    if ahead + own >= 1:
        return inf
    return left / ((1 - ahead) * (1 - ahead - own))


def pollaczek_khinchine(streams: Sequence[Stream]) -> float:
    """Return the mean wait under first-come-first-served order."""
    return wait_behind(residual(streams), 0.0, sum(stream.utilisation for stream in streams))


def cobham(streams: Sequence[Stream]) -> list[float]:
    """Return the mean waits under non-preemptive priorities, for streams in order of priority."""
    left, ahead, waits = residual(streams), 0.0, []
    for stream in streams:
        waits.append(wait_behind(left, ahead, stream.utilisation))
        ahead += stream.utilisation
    return waits


def capacity(name: str, weights: Mapping[str, float], demands: Mapping[str, float]) -> float:
    """Return the share of the server's time available to one user where several share it by weight.

    The others take what they need, up to their weighted shares of the time left while all want more.
    """
    rest, left = 1.0, {other: demand for other, demand in demands.items() if other != name}
    while True:
        total = weights[name] + sum(weights[other] for other in left)
        content = [other for other, demand in left.items() if demand <= rest * weights[other] / total]
        if not content:
            return rest * weights[name] / total
        for other in content:
            rest -= left.pop(other)


def cycle(turns: float, room: float, work: float) -> float:
    """Return the time of a round, in seconds, in which each user gets a turn and processes all waiting work.

    `turns` is the fixed cost of the turns, `work` the utilisation by the work itself, and `room` the
    available share of the server.
    """
    return turns / (room - work) if work < room else inf


def percentile(mean: float, percent: float) -> float:
    """Return a percentile of an exponential distribution with this mean."""
    return -mean * log(1 - percent / 100)
