"""Adaptive choice between policies, by what they do for weighted requirements."""

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
"""The paper's four (2.1), and the one with the best mean response time."""


def _default_policies() -> tuple[InnerPolicy, ...]:
    return tuple(InnerPolicy(policy=name) for name in _DEFAULT_POLICIES if name in POLICIES)


class AdaptiveOptions(PolicyOptions):
    """What is chosen from, for what, how often and how."""

    policies: Annotated[tuple[InnerPolicy, ...], Field(min_length=1)] = Field(
        default_factory=_default_policies
    )
    """The policies to choose from; the same may be named several times with other options."""
    specification: Specification = DEFAULT_SPECIFICATION
    """What they are judged by."""
    interval_ms: Annotated[int, Field(gt=0)] = 1000
    """Time between two measurements; after each, the policy that decides may change."""
    switch_delay: Annotated[int, Field(gt=0)] = 1
    """Intervals that a newly chosen policy has before it is judged: the first still shows its predecessor."""
    learner: Literal["printed", "sharp"] = "printed"
    """How the next policy is chosen: the paper's roulette wheel, or a bandit that tells policies apart."""
    decay: Annotated[float, Field(gt=0, lt=0.5)] = 0.25
    """What an old score weighs against a new one, for `printed`."""


@register
class AdaptiveSelection(Policy[AdaptiveOptions]):
    """AMoS paper, 3: runs one policy at a time, measures it and chooses again, from wherever queues are.

    All policies have a first interval in turn; then the learner chooses. Where the paper is silent: scores
    are 0 while all measurements are the same, delay without an answer is the age of the oldest tuple, and
    intervals in which there was nothing to do are not judged. Good when load or requirements change; as
    printed it is little better than choosing at random, and a fixed load is served best by its best policy.
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
        self._under_way: dict[int, Slice] = {}  # by the number of the first operator
        self._left_over: dict[int, Slice] = {}  # likewise, but begun by a policy that decides no more
        self._samples: list[Sample] = []  # of the policy in charge, since it was last judged
        self._patience = options.switch_delay  # samples until it is judged
        self._tried = 1  # policies that have had their first turn
        self._activate(0)
        # Drivers ask once, so it holds for whoever may be in charge later.
        self.watches_growth = any(inner.make(view).watches_growth for inner in options.policies)
        self._now = 0
        self._restart(sys.maxsize)

    @property
    def active(self) -> InnerPolicy:
        """The policy that decides now."""
        return self.options.policies[self._index]

    @property
    def scores(self) -> list[float]:
        """How good the learner takes each policy to be, in the order of the options; more is better."""
        return self._learner.scores(self._specification)

    @property
    def specification(self) -> Specification:
        """What policies are judged by."""
        return self._specification

    def specify(self, specification: Specification) -> None:
        """Judge by other requirements from now on; what was learned of their metrics is kept."""
        self._specification = specification

    def adopt(self, options: AdaptiveOptions) -> bool:
        """Take another specification without forgetting what was learned; other options need a new start."""
        other = options.specification
        fits = options == self.options.model_copy(update={"specification": other})
        if not fits or other == self._specification:
            return False
        self.options = options
        self.specify(other)
        return True

    # What the policy in charge is told

    def admit(self, query: QueryView) -> None:
        """Hand on."""
        self._queries[query.id] = query
        self._policy.admit(query)

    def retire(self, query: QueryView) -> None:
        """Hand on."""
        del self._queries[query.id]
        self._policy.retire(query)

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Hand on."""
        return self._policy.arrived(operator, now)

    def grew(self, operator: OperatorView, now: int) -> None:
        """Hand on, if it matters now."""
        if self._policy.watches_growth:
            self._policy.grew(operator, now)

    def refreshed(self, query: QueryView) -> None:
        """Hand on."""
        self._policy.refreshed(query)

    def reprioritised(self) -> None:
        """Hand on."""
        self._policy.reprioritised()

    def next(self, core: int, now: int) -> Slice | None:
        """Return what the policy in charge wants to run; at the end of an interval, choose who that is."""
        if not self._since <= now < self._due:
            self._close_interval(now)
        self._now = now
        slice_ = self._policy.next(core, now)
        if slice_ is not None:
            self._under_way[slice_.operators[0].number] = slice_
        return slice_

    def finished(self, slice_: Slice, report: Report) -> None:
        """Count what came of it, and tell the policy in charge, whoever began it."""
        self._interval.add(report)
        first = slice_.operators[0].number
        if self._under_way.pop(first, None) is not None:
            self._policy.finished(slice_, report)
            return
        self._left_over.pop(first, None)
        for operator in slice_.operators:
            if operator.ready:
                self._policy.arrived(operator, self._now)

    # Measuring and choosing

    def _restart(self, now: int) -> None:
        self._interval = Interval(now)
        self._since, self._due = now, now + self.options.interval_ms * 1_000_000

    def _close_interval(self, now: int) -> None:
        if now >= self._since:  # else it has not begun yet, or the clock was set back
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
        """Tell the new policy of all queries, and of all that is ready and not being run."""
        self._left_over |= self._under_way
        self._under_way.clear()
        claimed = {operator.number for slice_ in self._left_over.values() for operator in slice_.operators}
        for query in self._queries.values():
            self._policy.admit(query)
            for operator in query.operators:
                if operator.number not in claimed and operator.ready:
                    self._policy.arrived(operator, now)
