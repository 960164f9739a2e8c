"""Journal of the optimizer's decisions, their reasons and their outcomes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from itertools import count

from mavstream_protocol.optimizer import Outcome as Outcome
from mavstream_server.optimizer.change import Proposal

_MAX_DECISIONS = 1000


class Decision:
    """A decision of the optimizer: an action and its outcome."""

    __slots__ = ("after", "at", "before", "ended", "growth", "note", "number", "outcome", "proposal")

    def __init__(self, number: int, at: float, proposal: Proposal, before: float) -> None:
        self.number = number
        self.at = at
        self.proposal = proposal
        self.before = before
        """Distress when the action was taken, of the class it is meant to help and more important ones."""
        self.growth = 0.0
        """Growth of the distress per second when the action was taken."""
        self.after: float | None = None
        """Distress when the action was judged; None until then."""
        self.ended: float | None = None
        self.outcome = Outcome.PROBATION
        self.note = ""


class Journal:
    """The most recent decisions, newest last."""

    def __init__(self) -> None:
        self._decisions: deque[Decision] = deque(maxlen=_MAX_DECISIONS)
        self._numbers = count(1)
        self.outcomes: Counter[tuple[str, Outcome]] = Counter()
        """Number of ended decisions by rule and outcome, including those no longer stored."""

    def add(self, at: float, proposal: Proposal, before: float) -> Decision:
        """Add a decision."""
        decision = Decision(next(self._numbers), at, proposal, before)
        self._decisions.append(decision)
        return decision

    def end(
        self, decision: Decision, outcome: Outcome, at: float, after: float | None, note: str = ""
    ) -> None:
        """Record the outcome of a decision."""
        if decision.ended is not None:  # it was to be undone, and that failed
            self.outcomes[decision.proposal.rule, decision.outcome] -= 1
        decision.outcome, decision.ended, decision.after, decision.note = outcome, at, after, note
        self.outcomes[decision.proposal.rule, outcome] += 1

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._decisions)

    @property
    def made(self) -> int:
        """Number of decisions made, including those no longer stored."""
        return self._decisions[-1].number if self._decisions else 0

    def __len__(self) -> int:
        return len(self._decisions)

    def of(self, query: str) -> list[Decision]:
        """Return the decisions made for a query."""
        return [decision for decision in self._decisions if query in decision.proposal.queries]
