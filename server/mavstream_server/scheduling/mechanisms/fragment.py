"""Fragments: an operator with everything above it, as one. Policies that go by rates rank them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mavstream_server.scheduling.mechanisms.ratio import Work, with_best
from mavstream_server.scheduling.mechanisms.route import readers
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import QueryView


class Fragment(NamedTuple):
    """What a tuple that enters an operator costs and gives on its way up."""

    cost: float
    """Nanoseconds per tuple, for what the rate counts."""
    selectivity: float
    """Answers per tuple that the rate counts: all but those of slow members of a shared pipeline."""
    answers: float
    """Answers per tuple, of everybody."""

    @property
    def rate(self) -> float:
        """The global output rate: answers per nanosecond of work."""
        return self.selectivity / self.cost if self.cost > 0 else 0.0


def fragments_inside(query: QueryView, figures: Mapping[int, Statistics]) -> dict[int, Fragment]:
    """Return the fragment from each operator up to the query's root, by the operator's number."""
    found: dict[int, Fragment] = {}
    for operator in reversed(query.operators):
        own, above = figures[operator.number], readers(operator, figures)
        # A split hands each tuple to one of its readers, all others hand it to every reader.
        share = 1 / len(operator.downstream) if operator.operator == "split" and above else 1.0
        cost = own.cost_per_tuple
        selectivity = own.selectivity if above else 1.0
        if above:
            parts = [found[reader.number] for reader in above]
            cost += own.selectivity * share * sum(part.cost for part in parts)
            selectivity *= share * sum(part.selectivity for part in parts)
        found[operator.number] = Fragment(cost, selectivity, selectivity)
    return found


def with_members(prefix: Fragment, members: Sequence[Fragment]) -> Fragment:
    """Return the fragment from an operator of a shared pipeline up to the roots of the pipeline's members.

    `prefix` goes up to the fan-out; `members` are what stands above it, the highest rate first. What all of
    them give is divided by what all of it costs, but members that would make the rate lower are left out:
    their operators wait behind it anyway, and nobody is to be slower for sharing with them. (Sharaf et al.,
    TODS 2008: the priority of a shared operator is that of its priority-defining tree.)
    """
    passed = prefix.selectivity
    above = (Work(passed * member.selectivity, passed * member.cost) for member in members)
    selectivity, cost = with_best(Work(0.0, prefix.cost), above)
    return Fragment(cost, selectivity, passed * sum(member.answers for member in members))
