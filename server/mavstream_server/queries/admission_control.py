"""Admission control: estimates the cost of each new query and, if configured, refuses it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from mavstream_protocol.admission import AdmissionEstimate, AdmissionPolicy, Outlook
from mavstream_protocol.errors import ProblemItem
from mavstream_protocol.queries import QueryBackend
from mavstream_server.core.errors import NotAdmitted
from mavstream_server.optimizer.admission.cost_history import CostHistory
from mavstream_server.optimizer.admission.estimate import Candidate, estimate
from mavstream_server.optimizer.admission.load import WINDOW_S, Arrivals
from mavstream_server.optimizer.admission.occupancy import BY_PRIORITY, ClassLoad, Occupancy
from mavstream_server.optimizer.admission.recent import RecentAdmissions
from mavstream_server.optimizer.target_index import IndexedTarget, TargetIndex
from mavstream_server.queries.load_watch import LoadWatch
from mavstream_server.queries.planning.applicant import Applicant

_MIN_OBSERVED_S = 1.0
"""Minimum time, in seconds, over which the engine must have been observed."""


class AdmissionControl:
    """Decides on admission from the last observed load and recent admissions, without asking the engine."""

    def __init__(
        self,
        watch: LoadWatch,
        priorities: Callable[[], Mapping[str, int]],
        targets: Callable[[], Iterable[IndexedTarget]],
        policy: Callable[[], AdmissionPolicy],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`targets` are those of all running queries; `policy` says how to treat queries that do not fit."""
        self._policy = policy
        self._watch = watch
        self._all_priorities = priorities
        self._all_targets = targets
        self._clock = clock
        self._recent = RecentAdmissions(WINDOW_S)
        # Derived from the last observation, computed on first use.
        self._evaluated = -1
        self._priorities: Mapping[str, int] = {}
        self._targets = TargetIndex()
        self._classes: dict[str, ClassLoad] | None = None

    def costs(self) -> CostHistory | None:
        """Return the measured costs by which new queries are assessed; None if admission control is off."""
        return None if self._policy() is AdmissionPolicy.OFF else self._watch.experience

    def rates(self, streams: frozenset[str]) -> Mapping[str, Arrivals]:
        """Return the rows per second by stream, or by query that is read; unknown ones are left out."""
        return self._watch.rates(streams)

    def admit(self, applicant: Applicant) -> AdmissionEstimate:
        """Admit a query and include it in later estimates; raises NotAdmitted."""
        found = self.estimate(applicant)
        if found.policy is AdmissionPolicy.REFUSE and not found.admitted:
            raise _refusal(applicant, found)
        self._recent.add(applicant.class_name, applicant.demand, self._clock())
        return found

    def estimate(self, applicant: Applicant) -> AdmissionEstimate:
        """Estimate the effects of admitting a query."""
        name = applicant.class_name
        self._evaluate_load(name)
        rates = self.rates(applicant.streams)
        silent = sorted(one for one in applicant.streams if one not in rates or not rates[one].rows)
        stages = self._watch.results.stages(applicant.streams)
        priority = self._priorities.get(name, 1)
        candidate = Candidate(name, priority, applicant.qos, applicant.demand, silent, stages)
        found = estimate(candidate, self._occupancy(), self._targets, self._policy())
        if found.admitted or not applicant.fits_spark:
            return found
        warning = "it would be admitted with backend 'spark', which a Spark cluster runs"
        update = {"other_backend": QueryBackend.SPARK.value, "warnings": (*found.warnings, warning)}
        return found.model_copy(update=update)

    def _evaluate_load(self, class_name: str) -> None:
        """Evaluate the latest observation, once."""
        if self._evaluated == self._watch.looks and class_name in self._priorities:
            return
        self._evaluated = self._watch.looks
        self._priorities = self._all_priorities()
        self._targets = TargetIndex(self._all_targets())
        self._classes = self._measured()

    def _measured(self) -> dict[str, ClassLoad] | None:
        load = self._watch.load
        if load.seconds < _MIN_OBSERVED_S:
            return None
        # Slices are not counted by class; their mean time is about the same in all classes.
        per_busy = load.turns / load.utilisation if load.utilisation else 0.0
        return {
            name: ClassLoad(
                self._priorities.get(name, 1),
                stats.queries,
                load.busy(name),
                load.busy(name) * per_busy,
                load.latency(name),
            )
            for name, stats in load.classes.items()
        }

    def _occupancy(self) -> Occupancy | None:
        """Return the measured occupancy plus recent admissions."""
        if self._classes is None:
            return None
        classes = dict(self._classes)
        for name, pending in self._recent.pending(self._clock()).items():
            known = classes.get(name) or ClassLoad(self._priorities.get(name, 1))
            classes[name] = known.later(pending.busy, pending.turns)
        return Occupancy(classes, self._watch.load.policy in BY_PRIORITY)


def _refusal(applicant: Applicant, found: AdmissionEstimate) -> NotAdmitted:
    items = [
        ProblemItem(pointer=f"qos/{target.objective}", code="target_cannot_be_kept", detail=target.reason)
        for target in found.targets
        if target.kept is Outlook.NO
    ]
    if found.endangered_queries:
        detail = next(one for one in found.warnings if one.startswith("targets of running"))
        items.append(ProblemItem(pointer="class", code="others_endangered", detail=detail))
    used = found.utilisation
    numbers = f"{found.cost_us_per_s:.0f} us of the engine's time per second"
    if used.before is not None and used.after is not None:
        numbers += f", which would be used to {used.after:.0%} instead of {used.before:.0%}"
    elsewhere = "" if found.other_backend is None else f"run it with backend '{found.other_backend}', "
    return NotAdmitted(
        f"query '{applicant.name}' is not admitted: {'; '.join(item.detail for item in items)}. It is "
        f"expected to need {numbers}. Give it looser targets, a narrower plan or a less important class, "
        f"stop other queries, {elsewhere}or let the server only warn (admission 'warn')",
        errors=items,
    )
