"""Result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mavstream_server.simulation.report.convergence import Convergence
from mavstream_server.simulation.report.metrics import (
    MILLISECOND,
    Numbers,
    ResponseMetrics,
    inversion_ratio,
    mean_by_window,
    response_metrics,
    starvation_ratio,
    throughput,
    weighted_mean,
)
from mavstream_server.simulation.scenario import SECOND

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Answers:
    """Departure times and response times of answers, in nanoseconds."""

    departures: Times
    responses: Times


@dataclass(frozen=True, slots=True)
class QueueSamples:
    """Total length of all queues at regular times."""

    at: Times
    tuples: Times
    bytes: Times

    @property
    def max_bytes(self) -> int:
        """Maximum over the samples."""
        return int(self.bytes.max(initial=0))

    @property
    def mean_bytes(self) -> float:
        """Mean over the samples."""
        return float(self.bytes.mean()) if self.bytes.size else 0.0

    @property
    def mean_tuples(self) -> float:
        """Mean number of waiting tuples over the samples."""
        return float(self.tuples.mean()) if self.tuples.size else 0.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of tuples and of scheduling events."""

    tuples: int
    """Tuples read from streams."""
    arrived: int
    """Tuples read from streams and of the answers of other queries, once for each reading operator."""
    consumed: int
    """Tuples consumed by all operators."""
    dropped: int
    """Tuples dropped by selective operators; negative if there was more output than input."""
    queued: int
    """Tuples that wait in queues at the end."""
    in_flight: int
    """Tuples between two operators at the end."""
    answers: int
    slices: int
    calls: int
    switches: int
    empty_visits: int
    preemptions: int
    """Slices that were ended by an arrival."""
    cuts: int
    """Slices that ended in the middle of a tuple, by an arrival or at the end of a quantum."""
    consultations: int
    """Tuples that arrived from streams while a slice was running."""

    @property
    def transitions(self) -> int:
        """Transitions of the PRB paper, 5.6: invocations of scheduler or operators, and preemptions.

        A preemptive policy is also invoked by every arrival; an arrival that does preempt is the invocation
        for the next slice, and counts once.
        """
        consulted = self.consultations - self.preemptions if self.preemptions else 0
        return self.slices + self.calls + self.cuts + consulted


@dataclass(frozen=True, slots=True)
class Result:
    """Metrics of one run, and methods that compute more. Classes are in order of descending priority."""

    workload: str
    policy: str
    options: Mapping[str, Any]
    seed: int
    cores: int
    sources: str
    """How sources were run."""
    classes: Mapping[str, ResponseMetrics]
    seconds: float
    """Simulated virtual time."""
    utilisation: float
    """Share of the time in which the cores were busy, without cores that run only sources."""
    source_utilisation: float | None
    """Share of the time in which the cores that run only sources were busy; None if there are none."""
    tuple_steps: int
    """Tuples consumed by all operators, including sources."""
    wall_s: float
    """Real time of the simulation."""
    cpu_s: float
    """Processor time of the simulation, which is more reliable on a shared machine."""
    counts: Counts
    queues: QueueSamples
    convergence: Convergence | None
    """Only for policies that correct inversions."""
    answers: Mapping[str, Answers] = field(repr=False)
    """Answers by class."""
    queries: Mapping[str, Answers] = field(repr=False)
    """Answers by query."""
    priorities: tuple[tuple[int, Mapping[str, int]], ...] = field(repr=False)
    """(nanosecond, priorities from then on)"""
    latency_targets: Mapping[str, int] = field(default_factory=dict, repr=False)
    """Effective latency targets (ns) of the queries that have one."""
    digest: str | None = None
    """Hash of all slices, equal for two identical runs; only on request."""

    # Metrics at the mean, or at a percentile

    def _at(self, level: int | None) -> list[tuple[int, float | None]]:
        return [(metrics.priority, metrics.at(level)) for metrics in self.classes.values()]

    def weighted_ms(self, level: int | None = None) -> float | None:
        """Return the mean over classes, weighted by priority, of their means or percentiles."""
        return weighted_mean(self._at(level))

    def inversion(self, level: int | None = None) -> float:
        """Return the priority inversion ratio at the mean or at a percentile; 0 without inversion."""
        return inversion_ratio(self._at(level))

    @property
    def weighted_mean_ms(self) -> float | None:
        """The weighted mean response time."""
        return self.weighted_ms()

    @property
    def inversion_ratio(self) -> float:
        """The priority inversion ratio at the mean."""
        return self.inversion()

    @property
    def starvation_ratio(self) -> float | None:
        """The response time of the least important class divided by that of the most important one."""
        return starvation_ratio(self._at(None))

    @property
    def mean_ms(self) -> float | None:
        """The mean response time over all answers."""
        answers = sum(metrics.answers for metrics in self.classes.values())
        sums = [f.answers * f.mean_ms for f in self.classes.values() if f.mean_ms is not None]
        return sum(sums) / answers if answers else None

    @property
    def overall(self) -> ResponseMetrics:
        """Response times over all classes."""
        parts = [answers.responses for answers in self.answers.values()]
        return response_metrics(0, np.concatenate(parts) if parts else np.zeros(0, np.int64))

    def targets_kept(self) -> dict[str, float]:
        """Return the share of answers within the latency target, by query; queries without one are left out.

        NaN without answers.
        """
        return {
            id_: float((self.queries[id_].responses <= target).mean())
            if self.queries[id_].responses.size
            else nan
            for id_, target in self.latency_targets.items()
        }

    # Metrics over time

    def response_over_time(self, window_s: float = 0.1) -> dict[str, Numbers]:
        """Return the mean response time (ms) of each class in every window; NaN without answers."""
        end, length = int(self.seconds * SECOND), int(window_s * SECOND)
        return {
            name: mean_by_window(one.departures, one.responses, end, length) / MILLISECOND
            for name, one in self.answers.items()
        }

    def inversion_over_time(self, window_s: float = 0.1) -> Numbers:
        """Return the priority inversion ratio in every window, by the priorities at that time."""
        responses, length = self.response_over_time(window_s), int(window_s * SECOND)
        columns = zip(*responses.values(), strict=True)
        return np.array(
            [
                inversion_ratio(self._paired(list(responses), index * length, column))
                for index, column in enumerate(columns)
            ]
        )

    def _paired(
        self, names: list[str], time: int, column: tuple[float, ...]
    ) -> list[tuple[int, float | None]]:
        held = [priorities for since, priorities in self.priorities if since <= time][-1]
        pairs = zip(names, column, strict=True)
        return [(held[name], None if np.isnan(value) else value) for name, value in pairs]

    def throughput(self, interval_s: float = 1.0) -> Numbers:
        """Return the answers per second of all classes in every complete interval."""
        end, length = int(self.seconds * SECOND), int(interval_s * SECOND)
        return sum(
            (throughput(one.departures, end, length) for one in self.answers.values()),
            np.zeros(end // length),
        )

    def throughput_deviation(self, interval_s: float = 1.0) -> float:
        """Return the standard deviation of the throughput over the intervals (MavStream thesis, 6.4)."""
        rates = self.throughput(interval_s)
        return float(rates.std()) if rates.size else 0.0

    def summary(self) -> dict[str, Any]:
        """Return the main metrics as a JSON object."""
        return {
            "classes": {
                name: {
                    "mean_ms": _rounded(one.mean_ms),
                    **{f"p{level}_ms": _rounded(one.at(level)) for level in (50, 95, 99)},
                }
                for name, one in self.classes.items()
            },
            "weighted_mean_ms": _rounded(self.weighted_mean_ms),
            "inversion_ratio": _rounded(self.inversion_ratio),
            "starvation_ratio": _rounded(self.starvation_ratio),
            "utilisation": _rounded(self.utilisation),
            "tuple_steps": self.tuple_steps,
            "seconds": _rounded(self.seconds),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 6)
