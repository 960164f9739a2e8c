"""The journal: what was decided, why, and what came of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from itertools import count

from mavstream_protocol.optimizer import Outcome as Outcome
from mavstream_server.optimizer.change import Proposal

_KEPT = 1000


class Decision:
    """An action that was taken."""

    __slots__ = ("after", "at", "before", "ended", "growth", "note", "number", "outcome", "proposal")

    def __init__(self, number: int, at: float, proposal: Proposal, before: float) -> None:
        self.number = number
        self.at = at
        self.proposal = proposal
        self.before = before
        """How much was missed when it was taken, by those for whose sake it was or who matter more,"""
        self.growth = 0.0
        """how much more each second,"""
        self.after: float | None = None
        """and how much when it was judged."""
        self.ended: float | None = None
        self.outcome = Outcome.PROBATION
        self.note = ""


class Journal:
    """The decisions of a while, the newest last."""

    def __init__(self) -> None:
        self._decisions: deque[Decision] = deque(maxlen=_KEPT)
        self._numbers = count(1)
        self.outcomes: Counter[tuple[str, Outcome]] = Counter()
        """Decisions that have ended, by rule and outcome, also of those that are forgotten."""

    def add(self, at: float, proposal: Proposal, before: float) -> Decision:
        """Begin an entry."""
        decision = Decision(next(self._numbers), at, proposal, before)
        self._decisions.append(decision)
        return decision

    def end(
        self, decision: Decision, outcome: Outcome, at: float, after: float | None, note: str = ""
    ) -> None:
        """Write down what came of a decision."""
        if decision.ended is not None:  # it could not be undone
            self.outcomes[decision.proposal.rule, decision.outcome] -= 1
        decision.outcome, decision.ended, decision.after, decision.note = outcome, at, after, note
        self.outcomes[decision.proposal.rule, outcome] += 1

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._decisions)

    @property
    def made(self) -> int:
        """How many decisions there were, also those that are forgotten."""
        return self._decisions[-1].number if self._decisions else 0

    def __len__(self) -> int:
        return len(self._decisions)

    def of(self, query: str) -> list[Decision]:
        """Return what was done for a query."""
        return [decision for decision in self._decisions if query in decision.proposal.queries]
