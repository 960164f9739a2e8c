"""Sources that run on the credit of their class: once a turn, when nothing else of it is ready (AQSIOS)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from mavstream_server.scheduling.policy import Policy
from mavstream_server.scheduling.registry import InnerPolicy
from mavstream_server.scheduling.units import QueryUnits
from mavstream_server.scheduling.view import OperatorKind, OperatorView, QueryView, Report, Slice, View


class WithoutSources:
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


class SourcesLast(Policy[Any]):
    """An inner policy that never sees sources, and the ring of those that are ready, asked when it is idle.

    So the rule holds whatever the inner policy makes of a query: operators, paths or segments. A source hands
    on what has gathered once a turn: a class that keeps reading what trickles in would spend its credit on
    small batches, which cost many times as much per tuple. (The paper's class scheduler polls twice, then
    yields.)
    """

    def __init__(self, inner: Policy[Any]) -> None:
        super().__init__(inner.view, inner.options)
        self.watches_growth = inner.watches_growth
        self._inner = inner
        self._ready: OrderedDict[int, OperatorView] = OrderedDict()  # by number, longest waiting first
        self._served: set[int] = set()  # sources that have handed on in this turn,
        self._rested: OrderedDict[int, OperatorView] = OrderedDict()  # and those of them that have more
        self._seen: dict[str, WithoutSources] = {}  # queries that have sources to hide, by id

    def admit(self, query: QueryView) -> None:
        """Hand on the query without its sources."""
        if any(operator.kind is OperatorKind.SOURCE for operator in query.operators):
            self._seen[query.id] = WithoutSources(query)
        self._inner.admit(self._seen.get(query.id, query))

    def retire(self, query: QueryView) -> None:
        """Forget the query and its sources."""
        for operator in query.operators:
            self._ready.pop(operator.number, None)
            self._rested.pop(operator.number, None)
            self._served.discard(operator.number)
        self._inner.retire(self._seen.pop(query.id, query))

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Put a source behind the others; all else is for the inner policy."""
        if operator.kind is OperatorKind.SOURCE:
            self._stand(operator)
            return False
        return self._inner.arrived(operator, now)

    def grew(self, operator: OperatorView, now: int) -> None:
        """Hand on, unless it is a source."""
        if operator.kind is not OperatorKind.SOURCE:
            self._inner.grew(operator, now)

    def next(self, core: int, now: int) -> Slice | None:
        """Return what the inner policy wants to run, else the source that has waited longest."""
        slice_ = self._inner.next(core, now)
        if slice_ is None and self._ready:
            number, source = self._ready.popitem(last=False)
            self._served.add(number)
            return Slice((source,))
        return slice_

    def finished(self, slice_: Slice, report: Report) -> None:
        """Put a source that has more behind the others; all else is for the inner policy."""
        first = slice_.operators[0]
        if first.kind is not OperatorKind.SOURCE:
            self._inner.finished(slice_, report)
        elif first.ready:
            if first.queued >= report.consumed:  # no trickle: as much waits as it has handed on
                self._served.discard(first.number)
            self._stand(first)

    def _stand(self, source: OperatorView) -> None:
        (self._rested if source.number in self._served else self._ready)[source.number] = source

    def begin_turn(self) -> None:
        """Let all sources hand on again."""
        self._served.clear()
        self._ready.update(self._rested)
        self._rested.clear()

    @property
    def rests(self) -> bool:
        """Whether a source has something for the next turn."""
        return bool(self._rested)

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
