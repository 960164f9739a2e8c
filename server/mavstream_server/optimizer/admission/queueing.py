"""Queueing theory: how long work waits for a server that is busy for a part of its time.

Rates are per second, times seconds, utilisations shares of the server's time. What would wait for ever waits
`inf`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, log
from typing import NamedTuple


class Stream(NamedTuple):
    """Work that arrives at random: how often, and how long it takes."""

    rate: float
    mean: float
    second_moment: float
    """Of the time that it takes: mean squared where it is constant, twice that where it is exponential."""

    @property
    def utilisation(self) -> float:
        """The share of the time that it takes."""
        return self.rate * self.mean


def residual(streams: Iterable[Stream]) -> float:
    """Return what is left, on average, of the work that an arrival finds begun."""
    return sum(stream.rate * stream.second_moment for stream in streams) / 2


def wait_behind(left: float, ahead: float, own: float) -> float:
    """Return the mean wait of work of utilisation `own` behind such of utilisation `ahead`.

    `left` is the residual. With nothing ahead this is Pollaczek and Khinchine, with all that is more
    important ahead it is Cobham.
    """
    if ahead + own >= 1:
        return inf
    return left / ((1 - ahead) * (1 - ahead - own))


def pollaczek_khinchine(streams: Sequence[Stream]) -> float:
    """Return the mean wait where work is served in the order of arrival."""
    return wait_behind(residual(streams), 0.0, sum(stream.utilisation for stream in streams))


def cobham(streams: Sequence[Stream]) -> list[float]:
    """Return the mean waits where the first of the streams always goes first; nothing is interrupted."""
    left, ahead, waits = residual(streams), 0.0, []
    for stream in streams:
        waits.append(wait_behind(left, ahead, stream.utilisation))
        ahead += stream.utilisation
    return waits


def capacity(name: str, weights: Mapping[str, float], demands: Mapping[str, float]) -> float:
    """Return the share of the time that one of several could use where they share it by weight.

    The others take what they need, but no more than their shares of what is left while all want more.
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
    """Return how long a round takes in which everybody gets a turn and takes all that waits.

    `turns` is what the turns cost whatever they find, `work` the utilisation by what they find, `room` the
    share of the server.
    """
    return turns / (room - work) if work < room else inf


def percentile(mean: float, percent: float) -> float:
    """Return the time that this share of exponential times with this mean does not exceed."""
    return -mean * log(1 - percent / 100)
