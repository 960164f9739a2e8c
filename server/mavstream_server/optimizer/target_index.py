"""Target index: targets of running queries, sorted so that endangered ones are found without a scan."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from mavstream_protocol.admission import EndangeredQuery
from mavstream_protocol.qos import LatencyTarget, QosSpec
from mavstream_server.core.metrics import Latency


class IndexedTarget(NamedTuple):
    """A running query and its targets."""

    query: str
    class_name: str
    qos: QosSpec


class TargetIndex:
    """Latency targets by class and statistic, tightest first; targets of other objectives by class."""

    def __init__(self, targets: Iterable[IndexedTarget] = ()) -> None:
        self._latency: dict[str, dict[str, _Group]] = {}
        self._others: dict[str, list[tuple[str, str, str]]] = {}
        for query, class_name, qos in targets:
            if qos.latency is not None:
                groups = self._latency.setdefault(class_name, {})
                group = groups.setdefault(qos.latency.statistic, _Group(qos.latency.percentile))
                group.members.append((allowed_ms(qos.latency), query))
            if qos.throughput is not None:
                self._others.setdefault(class_name, []).append((query, "throughput", "rows_per_s"))
            if qos.memory is not None:
                self._others.setdefault(class_name, []).append((query, "memory", "bytes"))
        for groups in self._latency.values():
            for group in groups.values():
                group.members.sort()

    def __contains__(self, class_name: object) -> bool:
        """Whether queries of a class have targets."""
        return class_name in self._latency or class_name in self._others

    def endangered(
        self, class_name: str, latency: Latency, factor: float, most: int
    ) -> tuple[int, list[EndangeredQuery]]:
        """Count the met targets of a class that a slowdown would violate, and return examples.

        The factor is `inf` if the class would fall behind without bound.
        """
        count, found = 0, []
        for statistic, group in self._latency.get(class_name, {}).items():
            now = statistic_ms(latency, group.percentile)
            if now is None and factor < inf:
                continue
            first = 0 if now is None else bisect_left(group.members, (now, ""))
            after = inf if now is None else now * factor
            last = bisect_left(group.members, (after, ""))
            count += max(last - first, 0)
            expected = None if after == inf else after
            for allowed, query in group.members[first : min(last, first + most)]:
                found.append(_endangered(class_name, query, "latency", statistic, allowed, now, expected))
        if factor == inf:
            others = self._others.get(class_name, [])
            count += len(others)
            found += [_endangered(class_name, *one, None, None, None) for one in others[:most]]
        return count, found[:most]


class _Group:
    __slots__ = ("members", "percentile")

    def __init__(self, percentile: float | None) -> None:
        self.percentile = percentile
        self.members: list[tuple[float, str]] = []


def allowed_ms(target: LatencyTarget) -> float:
    """Return the highest latency, in milliseconds, that meets a target."""
    return target.at_most / 1000 * (1 + target.tolerance)


def statistic_ms(latency: Latency, percentile: float | None) -> float | None:
    """Return the mean or a percentile in milliseconds, or None without answers."""
    return latency.mean_ms if percentile is None else latency.percentile_ms(percentile)


def _endangered(
    class_name: str,
    query: str,
    objective: str,
    statistic: str,
    allowed: float | None,
    now: float | None,
    expected: float | None,
) -> EndangeredQuery:
    return EndangeredQuery(
        query=query,
        **{"class": class_name},
        objective=objective,
        statistic=statistic,
        allowed=allowed,
        now=now,
        expected=expected,
    )
