"""Adaptive choice between policies by weighted requirements (AMoS)."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from pydantic import Field

from mavstream_protocol.specification import DEFAULT_SPECIFICATION, Specification
from mavstream_server.scheduling.mechanisms.learning.interval import Interval, Sample
from mavstream_server.scheduling.mechanisms.learning.learner import Learner, PrintedLearner
from mavstream_server.scheduling.mechanisms.learning.sharp_learner import SharpLearner
from mavstream_server.scheduling.policy import Level, Policy, PolicyOptions
from mavstream_server.scheduling.registry import POLICIES, InnerPolicy, register
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View

_DEFAULT_POLICIES = ("rr", "fifo", "mtiq", "chain", "hr")
"""The four policies of the paper (2.1), and the one with the best mean response time."""


def _default_policies() -> tuple[InnerPolicy, ...]:
    return tuple(InnerPolicy(policy=name) for name in _DEFAULT_POLICIES if name in POLICIES)


class AdaptiveOptions(PolicyOptions):
    """Options of `amos`: the candidates, the requirements, the interval and the learner."""

    policies: Annotated[tuple[InnerPolicy, ...], Field(min_length=1)] = Field(
        default_factory=_default_policies
    )
    """The policies to choose from; a policy may occur several times with different options."""
    specification: Specification = DEFAULT_SPECIFICATION
    """The weighted requirements by which policies are judged."""
    interval_ms: Annotated[int, Field(gt=0)] = 1000
    """Milliseconds between two measurements; after each, the active policy may change."""
    switch_delay: Annotated[int, Field(gt=0)] = 1
    """Intervals before a newly chosen policy is judged: the first one still shows its predecessor."""
    learner: Literal["printed", "sharp"] = "printed"
    """How the next policy is chosen: `printed`, the paper's roulette wheel, or `sharp`, a bandit."""
    decay: Annotated[float, Field(gt=0, lt=0.5)] = 0.25
    """Weight of the previous score against the new one; used by the learner `printed`."""


@register
class AdaptiveSelection(Policy[AdaptiveOptions]):
    """AMoS paper, 3: runs one policy at a time, measures it and chooses again; queues are kept.

    Each policy first gets one interval; then the learner chooses. Where the paper leaves it open: scores
    are 0 while all measurements are equal, delay without an answer is the age of the oldest tuple, and
    intervals without work are not judged. Good when load or requirements change; as printed it is little
    better than a random choice, and a constant load is served best by the one policy that fits it.
    """

    name = "amos"
    optimises = "any weighted mix of delay, output rate and queue memory"
    level = Level.META
    fair = False  # some of the policies are not
    Options = AdaptiveOptions

    def __init__(self, view: View, options: AdaptiveOptions) -> None:
        super().__init__(view, options)
        self._specification = options.specification
        self._learner: Learner = (
            SharpLearner(len(options.policies))
            if options.learner == "sharp"
            else PrintedLearner(len(options.policies), options.decay)
        )
        self._queries: dict[str, QueryView] = {}
        self._under_way: dict[int, Slice] = {}  # running slices, by number of the first operator
        self._left_over: dict[int, Slice] = {}  # likewise, but started by a previous policy
        self._samples: list[Sample] = []  # of the active policy, since it was last judged
        self._patience = options.switch_delay  # samples until the active policy is judged
        self._tried = 1  # policies that have had their first interval
        self._activate(0)
        # Drivers read this once, so it must hold for every policy that may become active.
        self.watches_growth = any(inner.make(view).watches_growth for inner in options.policies)
        self._now = 0
        self._restart(sys.maxsize)

    @property
    def active(self) -> InnerPolicy:
        """The active policy."""
        return self.options.policies[self._index]

    @property
    def scores(self) -> list[float]:
        """The learner's score of each policy, in the order of the options; higher is better."""
        return self._learner.scores(self._specification)

    @property
    def specification(self) -> Specification:
        """The weighted requirements by which policies are judged."""
        return self._specification

    def specify(self, specification: Specification) -> None:
        """Change the requirements; what was learned about their metrics is kept."""
        self._specification = specification

    def adopt(self, options: AdaptiveOptions) -> bool:
        """Apply a changed specification and keep the learned state; other options need a new policy."""
        other = options.specification
        fits = options == self.options.model_copy(update={"specification": other})
        if not fits or other == self._specification:
            return False
        self.options = options
        self.specify(other)
        return True

    # Notifications of the active policy

    def admit(self, query: QueryView) -> None:
        """Forward to the active policy."""
        self._queries[query.id] = query
        self._policy.admit(query)

    def retire(self, query: QueryView) -> None:
        """Forward to the active policy."""
        del self._queries[query.id]
        self._policy.retire(query)

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Forward to the active policy."""
        return self._policy.arrived(operator, now)

    def grew(self, operator: OperatorView, now: int) -> None:
        """Forward to the active policy, if it watches growth."""
        if self._policy.watches_growth:
            self._policy.grew(operator, now)

    def refreshed(self, query: QueryView) -> None:
        """Forward to the active policy."""
        self._policy.refreshed(query)

    def reprioritised(self) -> None:
        """Forward to the active policy."""
        self._policy.reprioritised()

    def next(self, core: int, now: int) -> Slice | None:
        """Return the slice of the active policy, which may change at the end of an interval."""
        if not self._since <= now < self._due:
            self._close_interval(now)
        self._now = now
        slice_ = self._policy.next(core, now)
        if slice_ is not None:
            self._under_way[slice_.operators[0].number] = slice_
        return slice_

    def finished(self, slice_: Slice, report: Report) -> None:
        """Add the report to the interval and notify the active policy, whichever policy started the slice."""
        self._interval.add(report)
        first = slice_.operators[0].number
        if self._under_way.pop(first, None) is not None:
            self._policy.finished(slice_, report)
            return
        self._left_over.pop(first, None)
        for operator in slice_.operators:
            if operator.ready:
                self._policy.arrived(operator, self._now)

    @property
    def decider(self) -> Policy[Any]:
        """The active policy."""
        return self._policy

    def hands_over(self, lower: OperatorView, upper: OperatorView) -> bool:
        """Return what the active policy answers."""
        return self._policy.hands_over(lower, upper)

    def may_wait(self, source: OperatorView) -> int:
        """Return what the active policy answers."""
        return self._policy.may_wait(source)

    # Measurement and choice

    def _restart(self, now: int) -> None:
        self._interval = Interval(now)
        self._since, self._due = now, now + self.options.interval_ms * 1_000_000

    def _close_interval(self, now: int) -> None:
        if now >= self._since:  # otherwise it has not started yet, or the clock was set back
            metrics = [self._learner.evidence(goal.metric) for goal in self._specification.requirements]
            sample = self._interval.measure(metrics, self._queries.values(), now)
            if sample is not None:
                self._samples.append(sample)
                if len(self._samples) >= self._patience:
                    self._choose(now)
        self._restart(now)

    def _choose(self, now: int) -> None:
        self._learner.learn(self._index, self._samples)
        self._samples, self._patience = [], 1
        if self._tried < len(self.options.policies):
            index = self._tried
            self._tried += 1
        else:
            index = self._learner.choose(self._specification, self.view.random)
        if index != self._index:
            self._patience = self.options.switch_delay
            self._activate(index)
            self._hand_over(now)

    def _activate(self, index: int) -> None:
        self._index = index
        self._policy: Policy[Any] = self.options.policies[index].make(self.view)

    def _hand_over(self, now: int) -> None:
        """Admit all queries to the new policy, and report all operators that are ready and not running."""
        self._left_over |= self._under_way
        self._under_way.clear()
        claimed = {operator.number for slice_ in self._left_over.values() for operator in slice_.operators}
        for query in self._queries.values():
            self._policy.admit(query)
            for operator in query.operators:
                if operator.number not in claimed and operator.ready:
                    self._policy.arrived(operator, now)
