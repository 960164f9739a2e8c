"""Sources that run on the credit of their class: only when nothing else of the class is ready (AQSIOS)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, TypeAlias

from mavstream_server.scheduling.mechanisms.precedence import Precedence
from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.policy import Policy
from mavstream_server.scheduling.registry import InnerPolicy
from mavstream_server.scheduling.view import OperatorKind, OperatorView, QueryView, Report, Slice, View

_Line: TypeAlias = OrderedDict[int, OperatorView]
"""Sources that are ready, by number, the one that has waited longest first."""


class QueryWithoutSources:
    """A query as it looks where the driver serves its sources."""

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
        """How much of its class it is to have."""
        return self._query.weight


class SourcesLast(Policy[Any]):
    """An inner policy that never sees sources, and the ring of those that are ready, asked when it is idle.

    So the rule holds whatever the inner policy makes of a query: operators, paths or segments. Sources of
    queries that weigh more than 1 go ahead of the others.
    """

    def __init__(self, inner: Policy[Any]) -> None:
        super().__init__(inner.view, inner.options)
        self.watches_growth = inner.watches_growth
        self._inner = inner
        self._ready: _Line = OrderedDict()
        self._ahead: _Line = OrderedDict()
        self._precedence = Precedence()
        self._seen: dict[str, QueryWithoutSources] = {}  # queries that have sources to hide, by id

    def admit(self, query: QueryView) -> None:
        """Hand on the query without its sources."""
        if any(operator.kind is OperatorKind.SOURCE for operator in query.operators):
            self._seen[query.id] = QueryWithoutSources(query)
        self._inner.admit(self._seen.get(query.id, query))

    def retire(self, query: QueryView) -> None:
        """Forget the query and its sources."""
        for operator in query.operators:
            self._ready.pop(operator.number, None)
            self._ahead.pop(operator.number, None)
        self._inner.retire(self._seen.pop(query.id, query))

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Put a source behind the others; all else is for the inner policy."""
        if operator.kind is OperatorKind.SOURCE:
            self._put(operator)
            return False
        return self._inner.arrived(operator, now)

    def grew(self, operator: OperatorView, now: int) -> None:
        """Hand on, unless it is a source."""
        if operator.kind is not OperatorKind.SOURCE:
            self._inner.grew(operator, now)

    def next(self, core: int, now: int) -> Slice | None:
        """Return what the inner policy wants to run, else the source that has waited longest."""
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
        """Put a source that has more behind the others; all else is for the inner policy."""
        first = slice_.operators[0]
        if first.kind is not OperatorKind.SOURCE:
            self._inner.finished(slice_, report)
        elif first.ready:
            self._put(first)

    def refreshed(self, query: QueryView) -> None:
        """Work out the units of what the inner policy sees, and tell it."""
        seen = self._seen.get(query.id)
        if seen is not None:
            seen.units = QueryUnits(seen)
        self._inner.refreshed(seen or query)

    def reprioritised(self) -> None:
        """Tell the inner policy."""
        self._inner.reprioritised()


class InnerWithSources(InnerPolicy):
    """The policy inside a class that pays for its sources."""

    def make(self, view: View) -> Policy[Any]:
        """Build it, with a ring of sources behind it."""
        return SourcesLast(super().make(view))


def _without_sources(operators: Sequence[OperatorView]) -> list[OperatorView]:
    return [operator for operator in operators if operator.kind is not OperatorKind.SOURCE]
