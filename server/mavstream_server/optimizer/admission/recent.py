"""Recent admissions: what new queries are expected to add to a load that was measured before they ran."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from mavstream_server.optimizer.admission.cost_history import Demand


class Pending(NamedTuple):
    """What is not in the measured load yet."""

    busy: float
    turns: float


class RecentAdmissions:
    """Queries that were admitted within the length that the load is measured over.

    The older one is, the more of it is in the measured load already: what counts of it falls from all to
    nothing. Sums are kept by class, so that thousands of them cost no more than one.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._entries: deque[tuple[float, str, float, float]] = deque()
        self._sums: dict[str, list[float]] = {}  # busy, turns, and both times the time of admission

    def add(self, class_name: str, demand: Demand, now: float) -> None:
        """Count a query that was admitted."""
        self._entries.append((now, class_name, demand.work, demand.turns))
        self._count(class_name, now, demand.work, demand.turns)

    def pending(self, now: float) -> dict[str, Pending]:
        """Return what is yet to come, by class."""
        while self._entries and self._entries[0][0] <= now - self._seconds:
            at, class_name, busy, turns = self._entries.popleft()
            self._count(class_name, at, -busy, -turns)
        if not self._entries:
            self._sums.clear()  # and with them what rounding left
        rest = 1 - now / self._seconds
        return {
            name: Pending(
                max(busy * rest + busy_at / self._seconds, 0.0),
                max(turns * rest + turns_at / self._seconds, 0.0),
            )
            for name, (busy, turns, busy_at, turns_at) in self._sums.items()
        }

    def _count(self, class_name: str, at: float, busy: float, turns: float) -> None:
        sums = self._sums.setdefault(class_name, [0.0, 0.0, 0.0, 0.0])
        for place, value in enumerate((busy, turns, busy * at, turns * at)):
            sums[place] += value
