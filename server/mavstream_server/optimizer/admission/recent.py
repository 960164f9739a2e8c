"""Recent admissions: expected load of new queries that the measured load does not include yet."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from mavstream_server.optimizer.admission.cost_history import Demand


class Pending(NamedTuple):
    """Expected load of a class that is not part of the measured load yet."""

    busy: float
    turns: float


class RecentAdmissions:
    """Queries admitted within the window over which the load is measured.

    The older an admission, the larger its share in the measured load: what remains to be added falls linearly
    to zero. Only sums per class are stored, so the cost does not depend on the number of admissions.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._entries: deque[tuple[float, str, float, float]] = deque()
        self._sums: dict[str, list[float]] = {}  # busy, turns, and both multiplied by the time of admission

    def add(self, class_name: str, demand: Demand, now: float) -> None:
        """Add an admitted query."""
        self._entries.append((now, class_name, demand.work, demand.turns))
        self._count(class_name, now, demand.work, demand.turns)

    def pending(self, now: float) -> dict[str, Pending]:
        """Return the load that is not measured yet, by class."""
        while self._entries and self._entries[0][0] <= now - self._seconds:
            at, class_name, busy, turns = self._entries.popleft()
            self._count(class_name, at, -busy, -turns)
        if not self._entries:
            self._sums.clear()  # also discards accumulated rounding errors
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
        for index, value in enumerate((busy, turns, busy * at, turns * at)):
            sums[index] += value
