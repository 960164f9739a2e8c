"""Admission estimate: whether a new query and the queries already running can meet their targets.

Pure functions of the measured load and the estimated demand of the query; no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from mavstream_protocol.admission import (
    AdmissionEstimate,
    AdmissionPolicy,
    EndangeredQuery,
    Outlook,
    TargetOutlook,
    Utilisation,
)
from mavstream_protocol.qos import LatencyTarget, MemoryTarget, QosSpec, ThroughputTarget
from mavstream_server.optimizer.admission.cost_history import Demand
from mavstream_server.optimizer.admission.occupancy import Occupancy, Response
from mavstream_server.optimizer.admission.queueing import percentile
from mavstream_server.optimizer.target_index import TargetIndex, allowed_ms, statistic_ms

_MAX_LISTED = 10  # endangered queries that are listed by name
_LONGEST_LINGER_S = 0.05
_NOTHING_KNOWN = Occupancy({}, by_priority=True)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A query to be admitted."""

    class_name: str
    priority: int
    qos: QosSpec
    demand: Demand
    silent: Sequence[str] = ()
    """Streams of the query without current arrivals, for which no estimate is possible."""
    stages: Sequence[str] = ()
    """The classes of the queries whose results it reads, in the order in which rows pass them."""


def estimate(
    candidate: Candidate, occupancy: Occupancy | None, targets: TargetIndex, policy: AdmissionPolicy
) -> AdmissionEstimate:
    """Estimate the effects of admitting a query; `occupancy` is None until the engine was measured."""
    return _Estimator(candidate, occupancy, targets).estimate(policy)


class _Estimator:
    def __init__(self, candidate: Candidate, measured: Occupancy | None, targets: TargetIndex) -> None:
        self._new = candidate
        self._measured = measured is not None
        self._before = measured or _NOTHING_KNOWN
        self._after = self._before.plus(candidate.class_name, candidate.priority, candidate.demand)
        self._response = self._after.response(candidate.class_name)
        self._targets_by_class = targets

    def estimate(self, policy: AdmissionPolicy) -> AdmissionEstimate:
        new, name = self._new, self._new.class_name
        targets = tuple(self._targets())
        count, endangered = self._endangered()
        known = self._before.classes.get(name)
        return AdmissionEstimate(
            policy=policy,
            admitted=not count and all(target.kept is not Outlook.NO for target in targets),
            cost_us_per_s=new.demand.work * 1e6,
            rows_per_s=new.demand.rows,
            memory_bytes=new.demand.memory,
            utilisation=self._utilisation(self._before.busy, self._after.busy),
            class_utilisation=self._utilisation(known.busy if known else 0.0, self._after.classes[name].busy),
            class_capacity=self._response.room if self._measured else None,
            targets=targets,
            endangered=tuple(endangered),
            endangered_queries=count,
            warnings=tuple(self._warnings(targets, count, endangered)),
        )

    def _utilisation(self, before: float, after: float) -> Utilisation:
        return Utilisation(before=before, after=after) if self._measured else _UNKNOWN_UTILISATION

    # The query's own targets

    def _targets(self) -> Iterator[TargetOutlook]:
        qos = self._new.qos
        if qos.latency is not None:
            yield self._latency(qos.latency)
        if qos.memory is not None:
            yield self._memory(qos.memory)
        if qos.throughput is not None:
            yield self._throughput(qos.throughput)

    def _latency(self, target: LatencyTarget) -> TargetOutlook:
        expected, allowed = self._expected_ms(target), allowed_ms(target)
        kind = target.statistic
        shown = f"{kind} is expected to {_be(expected, 'ms')}, at most {allowed:.3g} ms are allowed"
        return self._target_estimate(
            "latency", kind, target.at_most / 1000, target.tolerance, expected, allowed, shown
        )

    def _expected_ms(self, target: LatencyTarget) -> float:
        """Return the latency of the query's class in ms, scaled by the expected growth of its queues.

        Rows wait once more in each query that they pass before.
        """
        name, after, demand = self._new.class_name, self._response, self._new.demand
        load = self._after.classes[name]
        longer = demand.work / demand.turns - load.busy / load.turns if demand.turns else 0.0
        before = sum(response.mean for _, response in self._before_it())
        longer = max(longer, 0.0) + self._statistic(before, target)
        known = statistic_ms(load.latency, target.percentile)
        if known is not None and after.stable:
            return known * self._slowdown(name) + 1000 * longer
        # The class has produced no answers recently. Under load, its sources may linger for more rows.
        linger = self._after.busy * min(_LONGEST_LINGER_S, target.at_most / 1e6 / 4)
        return 1000 * (self._statistic(after.mean, target) + linger + longer)

    @staticmethod
    def _statistic(mean: float, target: LatencyTarget) -> float:
        return mean if target.percentile is None else percentile(mean, target.percentile)

    def _before_it(self) -> list[tuple[str, Response]]:
        """Return the classes, with their responses, of the queries that rows pass before."""
        known = [name for name in self._new.stages if name in self._after.classes]
        return [(name, self._after.response(name)) for name in known]

    def _memory(self, target: MemoryTarget) -> TargetOutlook:
        demand, allowed = self._new.demand, target.at_most * (1 + target.tolerance)
        expected = (
            demand.memory + demand.row_bytes * demand.rows * self._response.mean if demand.rows else 0.0
        )
        shown = f"its memory is expected to {_be(expected, 'bytes')}, at most {allowed:.3g} bytes are allowed"
        return self._target_estimate(
            "memory", "bytes", target.at_most, target.tolerance, expected, allowed, shown
        )

    def _throughput(self, target: ThroughputTarget) -> TargetOutlook:
        expected, least = self._most_rows(), target.at_least * (1 - target.tolerance)
        shown = f"up to {expected:.4g} rows per second are expected, at least {least:.4g} are required"
        return self._target_estimate(
            "throughput", "rows_per_s", target.at_least, target.tolerance, expected, least, shown, more=True
        )

    def _most_rows(self) -> float:
        """Return the highest row rate, per second, that the time left to the query's class can sustain."""
        demand, name, after = self._new.demand, self._new.class_name, self._after
        others = self._before.work_of(name)
        work = after.work_of(name) - others
        return max(self._response.room - others, 0.0) * demand.rows / work if work > 0 else 0.0

    def _target_estimate(
        self,
        objective: str,
        statistic: str,
        target: float,
        tolerance: float,
        expected: float,
        bound: float,
        shown: str,
        *,
        more: bool = False,
    ) -> TargetOutlook:
        unknown = self._unknown()
        kept = Outlook.YES if (expected >= bound if more else expected <= bound) else Outlook.NO
        return TargetOutlook(
            objective=objective,
            statistic=statistic,
            target=target,
            tolerance=tolerance,
            expected=None if unknown or expected == inf else expected,
            kept=Outlook.UNKNOWN if unknown else kept,
            reason=unknown or (shown if expected < inf else f"{shown}: {self._why_behind()}"),
        )

    # Targets of other queries

    def _endangered(self) -> tuple[int, list[EndangeredQuery]]:
        """Count the targets in equal or higher classes that would be missed, and return examples."""
        count: int = 0
        found: list[EndangeredQuery] = []
        for name, load in sorted(self._before.classes.items(), key=lambda one: (-one[1].priority, one[0])):
            if load.priority >= self._new.priority and name in self._targets_by_class:
                more, some = self._targets_by_class.endangered(
                    name, load.latency, self._slowdown(name), _MAX_LISTED
                )
                count, found = count + more, found + some
        return count, found[:_MAX_LISTED]

    def _slowdown(self, name: str) -> float:
        """Return the factor by which the response time of a class is expected to grow."""
        before = self._before.response(name) if name in self._before.classes else None
        if before is None or not before.stable:
            return 1.0  # it falls behind already, with or without this query
        return self._after.response(name).mean / before.mean

    # Messages

    def _unknown(self) -> str | None:
        """Return the reason why no estimate is possible, or None."""
        if not self._measured:
            return "unknown: the engine was not measured for long enough; try again in a few seconds"
        if self._new.silent:
            streams = ", ".join(f"'{name}'" for name in self._new.silent)
            return f"unknown: no rows arrived recently on {streams}, so no estimate is possible"
        return None

    def _why_behind(self) -> str:
        """Name the first class on the way of its rows that falls behind."""
        name, response = self._new.class_name, self._response
        for stage, passed in self._before_it():
            if not passed.stable:
                name, response = stage, passed
                break
        who = f"class '{name}' needs" if self._after.by_priority else "all queries need"
        work = self._after.work_of(name)
        return f"{who} {work:.0%} of the engine's time, and at most {response.room:.0%} is available"

    def _warnings(
        self, targets: Sequence[TargetOutlook], count: int, endangered: Sequence[EndangeredQuery]
    ) -> Iterator[str]:
        for target in targets:
            if target.kept is Outlook.NO:
                yield f"its {target.objective} target cannot be met: {target.reason}"
        if count:
            names = ", ".join(f"'{one.query}' ({_danger(one)})" for one in endangered)
            more = f" and {count - len(endangered)} more" if count > len(endangered) else ""
            yield f"targets of running queries would be missed ({count}): {names}{more}"
        if self._measured and not self._response.stable:
            yield f"it would fall behind: {self._why_behind()}"


_UNKNOWN_UTILISATION = Utilisation(before=None, after=None)


def _be(value: float, unit: str) -> str:
    return "grow without bound" if value == inf else f"be {value:.3g} {unit}"


def _danger(one: EndangeredQuery) -> str:
    if one.allowed is None or one.expected is None:
        return f"{one.objective}: class '{one.class_}' would fall behind"
    limit = f"at most {one.allowed:.3g} ms are allowed"
    return f"{one.statistic} {one.expected:.3g} ms in class '{one.class_}', {limit}"
