"""Inner policy that runs the sources of a class when nothing else of the class is ready (AQSIOS)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, TypeAlias

from mavstream_server.scheduling.mechanisms.precedence import Precedence
from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.policy import Policy, UnitKind
from mavstream_server.scheduling.registry import InnerPolicy
from mavstream_server.scheduling.view import OperatorKind, OperatorView, QueryView, Report, Slice, View

_Line: TypeAlias = OrderedDict[int, OperatorView]
"""Ready sources by number, the one that has waited longest first."""


class QueryWithoutSources:
    """View of a query without its sources, as if the driver ran them."""

    def __init__(self, query: QueryView) -> None:
        self._query = query
        self.id = query.id
        self.operators = _without_sources(query.operators)
        self.paths = [_without_sources(path) for path in query.paths]
        self.units = QueryUnits(self)

    @property
    def class_name(self) -> str:
        """The class it belongs to."""
        return self._query.class_name

    @property
    def weight(self) -> int:
        """Its share of the class relative to a query of weight 1."""
        return self._query.weight

    @property
    def latency_target(self) -> int | None:
        """Its effective latency target (ns)."""
        return self._query.latency_target


class SourcesLast(Policy[Any]):
    """An inner policy that never sees sources, and a ring of ready sources that run when it is idle.

    The rule thus holds for any inner policy, whether it schedules operators, paths or segments. Sources of
    queries of a weight above 1 go ahead of the others.
    """

    def __init__(self, inner: Policy[Any]) -> None:
        super().__init__(inner.view, inner.options)
        self.watches_growth = inner.watches_growth
        self.unit = inner.unit
        self._inner = inner
        self._ready: _Line = OrderedDict()
        self._ahead: _Line = OrderedDict()
        self._precedence = Precedence()
        self._seen: dict[str, QueryWithoutSources] = {}  # queries that have sources to hide, by id

    def admit(self, query: QueryView) -> None:
        """Admit the query without its sources to the inner policy."""
        if any(operator.kind is OperatorKind.SOURCE for operator in query.operators):
            self._seen[query.id] = QueryWithoutSources(query)
        self._inner.admit(self._seen.get(query.id, query))

    def retire(self, query: QueryView) -> None:
        """Remove the query and its sources."""
        for operator in query.operators:
            self._ready.pop(operator.number, None)
            self._ahead.pop(operator.number, None)
        self._inner.retire(self._seen.pop(query.id, query))

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Append a source to the ring; forward all other operators to the inner policy."""
        if operator.kind is OperatorKind.SOURCE:
            self._put(operator)
            return False
        return self._inner.arrived(operator, now)

    def grew(self, operator: OperatorView, now: int) -> None:
        """Forward to the inner policy, except for sources."""
        if operator.kind is not OperatorKind.SOURCE:
            self._inner.grew(operator, now)

    def next(self, core: int, now: int) -> Slice | None:
        """Return the slice of the inner policy, else the source that has waited longest."""
        slice_ = self._inner.next(core, now)
        if slice_ is None and (self._ahead or self._ready):
            return Slice((self._next_line().popitem(last=False)[1],))
        return slice_

    def _next_line(self) -> _Line:
        if not self._ahead:
            return self._ready
        weight = next(iter(self._ahead.values())).query.weight
        heavy = self._precedence.granted(weight, len(self._ahead), len(self._ready))
        return self._ahead if heavy else self._ready

    def _put(self, source: OperatorView) -> None:
        line = self._ready if source.query.weight == 1 else self._ahead
        line[source.number] = source

    def finished(self, slice_: Slice, report: Report) -> None:
        """Append a source that has more to the ring; forward all other slices to the inner policy."""
        first = slice_.operators[0]
        if first.kind is not OperatorKind.SOURCE:
            self._inner.finished(slice_, report)
        elif first.ready:
            self._put(first)

    def hands_over(self, lower: OperatorView, upper: OperatorView) -> bool:
        """Return what the inner policy answers; what a source emits waits for a decision of that policy."""
        return lower.kind is not OperatorKind.SOURCE and self._inner.hands_over(lower, upper)

    def refreshed(self, query: QueryView) -> None:
        """Recompute the units that the inner policy sees, then forward."""
        seen = self._seen.get(query.id)
        if seen is not None:
            seen.units = QueryUnits(seen)
        self._inner.refreshed(seen or query)

    def reprioritised(self) -> None:
        """Forward to the inner policy."""
        self._inner.reprioritised()


class InnerWithSources(InnerPolicy):
    """The policy inside a class whose sources run on the credit of the class."""

    def make(self, view: View) -> Policy[Any]:
        """Create the policy, with a ring of sources behind it unless it runs whole queries.

        A query that runs as a whole reads and processes a train in one turn, so its sources are part of it.
        """
        inner = super().make(view)
        return inner if inner.unit is UnitKind.QUERY else SourcesLast(inner)


def _without_sources(operators: Sequence[OperatorView]) -> list[OperatorView]:
    return [operator for operator in operators if operator.kind is not OperatorKind.SOURCE]
