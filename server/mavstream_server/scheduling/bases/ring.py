"""Base of round-robin policies: a ring of turns."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable

from mavstream_server.scheduling.mechanisms.precedence import Precedence
from mavstream_server.scheduling.policy import OptionsT, Policy
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View


class Turn:
    """An operator, or several that run together, in the ring; its slice is always the same."""

    __slots__ = ("gone", "line", "queued_or_running", "slice", "weight")

    def __init__(self, slice_: Slice, weight: int, line: deque[Turn]) -> None:
        self.slice = slice_
        self.weight = weight
        self.line = line
        """The queue that it waits in."""
        self.queued_or_running = False
        """Whether it is in the ring or running."""
        self.gone = False


class RingPolicy(Policy[OptionsT]):
    """Gives turns in the order in which operators became ready; subclasses define the turns.

    Queries of a weight above 1 wait in a queue of their own, which goes ahead of the ring: as many of their
    turns in a row as their weight, then one of the others, so that none starves.
    """

    weighs = True

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        self._turns: dict[int, Turn] = {}  # by operator number
        self._ring: deque[Turn] = deque()
        self._ahead: deque[Turn] = deque()
        self._precedence = Precedence()

    @abstractmethod
    def turns(self, query: QueryView) -> Iterable[Slice]:
        """Return the turns of a query; each operator is in one of them."""

    def admit(self, query: QueryView) -> None:
        """Create the query's turns."""
        for slice_ in self.turns(query):
            turn = Turn(slice_, query.weight, self._ring if query.weight == 1 else self._ahead)
            for operator in slice_.operators:
                self._turns[operator.number] = turn

    def retire(self, query: QueryView) -> None:
        """Remove the query's turns; the ring skips those that are still in it."""
        for operator in query.operators:
            if (turn := self._turns.pop(operator.number, None)) is not None:
                turn.gone = True

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Append the operator's turn to the ring."""
        turn = self._turns[operator.number]
        if not turn.queued_or_running:
            turn.queued_or_running = True
            turn.line.append(turn)
        return False

    def next(self, core: int, now: int) -> Slice | None:
        """Return the turn that has waited longest."""
        if self._ahead:
            return self._next_of_both()
        ring = self._ring
        while ring:
            turn = ring.popleft()
            if not turn.gone:
                return turn.slice
        return None

    def _next_of_both(self) -> Slice | None:
        ring, ahead = self._ring, self._ahead
        while ring or ahead:
            heavy = bool(ahead) and self._precedence.granted(ahead[0].weight, len(ahead), len(ring))
            turn = ahead.popleft() if heavy else ring.popleft()
            if not turn.gone:
                return turn.slice
        return None

    def finished(self, slice_: Slice, report: Report) -> None:
        """Append the turn to the ring again if its operators have more to do."""
        turn = self._turns.get(slice_.operators[0].number)
        if turn is None:
            return
        turn.queued_or_running = slice_.ready
        if turn.queued_or_running:
            turn.line.append(turn)
