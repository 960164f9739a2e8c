"""Base of policies that always run the ready operator, or query, of highest priority."""

from __future__ import annotations

from abc import abstractmethod

from mavstream_server.scheduling.mechanisms.ranking import Ranking
from mavstream_server.scheduling.policy import OptionsT, Policy, UnitKind
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View


class RankedPolicy(Policy[OptionsT]):
    """Keeps ready operators in a heap by priority, which subclasses define.

    Where the unit is the query, its first operator stands for all of them.
    """

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        # All ready operators that are not running.
        self._ready: Ranking[OperatorView] = Ranking()

    @abstractmethod
    def priority(self, operator: OperatorView) -> float:
        """Return the priority of an operator; the highest runs first, of equals the one admitted first."""

    def turn(self, operator: OperatorView) -> Slice:
        """Return the slice of a chosen operator: by default everything that waits at it."""
        return Slice((operator,))

    def rank(self, operator: OperatorView) -> None:
        """Insert an operator into the ranking by its current priority."""
        if self.unit is UnitKind.QUERY:
            operator = operator.query.operators[0]
        self._ready.put(operator, (-self.priority(operator), operator.number))

    def retire(self, query: QueryView) -> None:
        """Remove the query's operators."""
        for operator in query.operators:
            self._ready.remove(operator)

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Rank the operator among the ready ones."""
        self.rank(operator)
        return False

    def next(self, core: int, now: int) -> Slice | None:
        """Return a slice of the operator of highest priority."""
        operator = self._ready.pop()
        return None if operator is None else self.turn(operator)

    def finished(self, slice_: Slice, report: Report) -> None:
        """Rank operators that are still ready."""
        for operator in slice_.operators:
            if operator.ready:
                self.rank(operator)
                if self.unit is UnitKind.QUERY:
                    return

    def refreshed(self, query: QueryView) -> None:
        """Rank the query's ready operators by their new statistics."""
        for operator in query.operators:
            if operator in self._ready:
                self.rank(operator)
