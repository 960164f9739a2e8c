"""The search: plans that rules lead to, the most promising first, within limits."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from mavstream_protocol.errors import InvalidPlan
from mavstream_protocol.plan import Plan
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.planning.rewriting.canonical import canonical, wording
from mavstream_server.planning.rewriting.costing.model import Assessment, CostModel
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule, RewriteStep
from mavstream_server.planning.rewriting.subject import Subject, Surroundings

MOST_STEPS = 16
"""Rules that are applied one after the other on the way to one plan."""


@dataclass(frozen=True, slots=True)
class Found:
    """A plan that the search came by."""

    plan: Plan
    typed: TypedPlan
    assessment: Assessment
    steps: tuple[RewriteStep, ...]


class Search:
    """Goes on from the cheapest plan that was not looked at yet. The same input gives the same plans."""

    def __init__(
        self,
        surroundings: Surroundings,
        model: CostModel,
        rules: Sequence[RewriteRule],
        most_steps: int = MOST_STEPS,
    ) -> None:
        self._surroundings = surroundings
        self._model = model
        self._rules = rules
        self._most_steps = most_steps
        self._seen: set[Hashable] = set()

    def run(self, plan: Plan, limit: int) -> list[Found]:
        """Return the plan itself and up to `limit` - 1 others, in the order in which they were found."""
        first = self._seen_first(plan)
        found, numbers = [first], count()
        # A running number behind the cost: ties are settled by who came first, plans are never compared.
        waiting = [(first.assessment.work, next(numbers), first)]
        while waiting and len(found) < limit:
            _, _, best = heapq.heappop(waiting)
            for new in self._from(best, first.typed):
                found.append(new)
                heapq.heappush(waiting, (new.assessment.work, next(numbers), new))
                if len(found) == limit:
                    break
        return found

    def _from(self, found: Found, original: TypedPlan) -> Iterator[Found]:
        """Yield the new plans that are one step away."""
        if len(found.steps) == self._most_steps:
            return
        ranks: Callable[[str], float] = self._model.ranks(found.typed)
        subject = Subject(found.plan, found.typed, self._surroundings, ranks)
        for rule in self._rules:
            for rewrite in rule.rewrites(subject):
                new = self._looked_at(rewrite, (*found.steps, _step(rule, rewrite)), original)
                if new is not None:
                    yield new

    def _seen_first(self, plan: Plan) -> Found:
        typed = self._surroundings.types(plan)
        self._seen |= {wording(plan), canonical(typed)}
        return Found(plan, typed, self._model.assess(typed), ())

    def _looked_at(
        self, rewrite: Rewrite, steps: tuple[RewriteStep, ...], original: TypedPlan
    ) -> Found | None:
        """Return what there is to know of a plan; None if it is known, or does not give the same columns."""
        try:
            plan = rewrite.plan
            worded = wording(plan)
            if worded in self._seen:
                return None
            self._seen.add(worded)
            typed = self._surroundings.types(plan)
        except InvalidPlan:
            return None  # a limit was passed
        form = canonical(typed)
        if form in self._seen or typed.schema != original.schema:
            return None
        self._seen.add(form)
        return Found(plan, typed, self._model.assess(typed), steps)


def _step(rule: RewriteRule, rewrite: Rewrite) -> RewriteStep:
    return RewriteStep(rule.name, rewrite.node, rewrite.told)
