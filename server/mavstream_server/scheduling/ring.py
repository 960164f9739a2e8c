"""The ring of ready operators that round-robin policies turn."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque

from mavstream_server.scheduling.policy import OptionsT, Policy
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View


class RingPolicy(Policy[OptionsT]):
    """Gives turns in the order in which operators became ready; what a turn is, subclasses say."""

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        # Every ready operator that is not running stands here exactly once.
        self._turns: deque[OperatorView] = deque()

    @abstractmethod
    def turn(self, operator: OperatorView) -> Slice:
        """Return how long an operator may run."""

    def retire(self, query: QueryView) -> None:
        """Forget the query's turns."""
        self._turns = deque(operator for operator in self._turns if operator.query is not query)

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Give the operator a turn behind the others."""
        self._turns.append(operator)
        return False

    def next(self, core: int, now: int) -> Slice | None:
        """Return the turn of the operator that has waited longest."""
        return self.turn(self._turns.popleft()) if self._turns else None

    def finished(self, slice_: Slice, report: Report) -> None:
        """Put an operator that is not done behind the others."""
        operator = slice_.operators[0]
        if operator.ready:
            self._turns.append(operator)
