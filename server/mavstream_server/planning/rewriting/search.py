"""The search for equivalent plans: applies rules to the cheapest plans first, within limits."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from mavstream_protocol.errors import InvalidPlan
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.planning.rewriting.canonical import canonical, wording
from mavstream_server.planning.rewriting.costing.model import Assessment, CostModel
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule, RewriteStep
from mavstream_server.planning.rewriting.subject import Subject, Surroundings

MOST_STEPS = 16
"""The most rules that are applied one after the other to derive a plan."""


@dataclass(frozen=True, slots=True)
class Found:
    """A plan that the search found."""

    plan: Plan
    typed: TypedPlan
    assessment: Assessment
    steps: tuple[RewriteStep, ...]


class Search:
    """A best-first search: expands the cheapest plan that was not expanded yet. It is deterministic."""

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
        first = self._original(plan)
        found, numbers = [first], count()
        # The number breaks ties in cost, in the order in which plans were found: plans are not comparable.
        candidates = [(first.assessment.work, next(numbers), first)]
        while candidates and len(found) < limit:
            _, _, best = heapq.heappop(candidates)
            for new in self._from(best, first.typed):
                found.append(new)
                heapq.heappush(candidates, (new.assessment.work, next(numbers), new))
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
                new = self._checked(rewrite, (*found.steps, _step(rule, rewrite)), original)
                if new is not None:
                    yield new

    def _original(self, plan: Plan) -> Found:
        typed = self._surroundings.types(plan)
        self._seen |= {wording(plan), canonical(typed)}
        return Found(plan, typed, self._model.assess(typed), ())

    def _checked(self, rewrite: Rewrite, steps: tuple[RewriteStep, ...], original: TypedPlan) -> Found | None:
        """Return the rewritten plan with its assessment; None if it is known or has other columns."""
        try:
            plan = rewrite.plan
            worded = wording(plan)
            if worded in self._seen:
                return None
            self._seen.add(worded)
            typed = self._surroundings.types(plan)
        except InvalidPlan:
            return None  # the plan exceeds a limit
        form = canonical(typed)
        if form in self._seen or typed.schema != original.schema:
            return None
        self._seen.add(form)
        return Found(plan, typed, self._model.assess(typed), steps)


def _step(rule: RewriteRule, rewrite: Rewrite) -> RewriteStep:
    return RewriteStep(rule.name, rewrite.node, rewrite.description)
