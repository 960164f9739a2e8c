"""The journal: what was decided, why, and what came of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from itertools import count

from mavstream_server.optimizer.change import Proposal

_KEPT = 1000


class Outcome(StrEnum):
    """What became of an action."""

    PROBATION = "probation"
    KEPT = "kept"
    UNDONE = "undone"
    RELAXED = "relaxed"
    """It took back what was not needed any more."""
    FAILED = "failed"
    """It could not be done."""


class Decision:
    """An action that was taken."""

    __slots__ = ("after", "at", "before", "ended", "note", "number", "outcome", "proposal")

    def __init__(self, number: int, at: float, proposal: Proposal, before: float) -> None:
        self.number = number
        self.at = at
        self.proposal = proposal
        self.before = before
        """How much was missed when it was taken,"""
        self.after: float | None = None
        """and when it was judged."""
        self.ended: float | None = None
        self.outcome = Outcome.PROBATION
        self.note = ""

    def end(self, outcome: Outcome, at: float, after: float | None, note: str = "") -> None:
        """Write down what came of it."""
        self.outcome, self.ended, self.after, self.note = outcome, at, after, note


class Journal:
    """The decisions of a while, the newest last."""

    def __init__(self) -> None:
        self._decisions: deque[Decision] = deque(maxlen=_KEPT)
        self._numbers = count(1)

    def add(self, at: float, proposal: Proposal, before: float) -> Decision:
        """Begin an entry."""
        decision = Decision(next(self._numbers), at, proposal, before)
        self._decisions.append(decision)
        return decision

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._decisions)

    def __len__(self) -> int:
        return len(self._decisions)

    def of(self, query: str) -> list[Decision]:
        """Return what was done for a query."""
        return [decision for decision in self._decisions if query in decision.proposal.queries]
