"""Linger: the control loop that decides how long a source waits for more rows."""

from __future__ import annotations

LONGEST_LINGER = 50_000_000  # ns, where there is no latency target
_SHORTEST_LINGER = 50_000  # ns


class Linger:
    """How long a source waits for more rows before it emits a small batch.

    Larger batches cost less per row. So while the engine is busy, the wait doubles after each small batch,
    and halves after a large one; an idle engine never waits. It is bounded by what the query can afford: a
    quarter of its latency target. A query without a target waits only while the policy permits it
    (`may_wait`), at most 50 ms. That other queries keep the engine busy is never a reason to wait.
    """

    __slots__ = ("length", "limit", "planned")

    def __init__(self) -> None:
        self.limit = LONGEST_LINGER
        """The longest wait (ns)."""
        self.planned = False
        """Whether a latency target leaves room for waiting, so that it needs no permission."""
        self.length = 0
        """The present wait (ns), where waiting is possible."""

    def aim_at(self, target: int | None) -> None:
        """Wait at most a quarter of a latency target (us); None for no target."""
        self.bound(LONGEST_LINGER if target is None else target * 1000 // 4, target is not None)

    def bound(self, limit: int, planned: bool) -> None:
        """Set the longest wait (ns), and whether it needs no permission."""
        self.limit = min(LONGEST_LINGER, limit)
        self.planned = planned
        self.length = min(self.length, self.limit)

    def wait(self, permitted: bool) -> int:
        """Return how long to wait from now on (ns), given what the policy permits."""
        return self.length if self.planned or permitted else 0

    def adapt(self, rows: int, train: int, idle: bool, permitted: bool) -> None:
        """Adapt the wait to a batch of `rows`, where `train` rows are a full one."""
        if idle or rows >= train // 2 or not (self.planned or permitted):
            self.length = self.length // 2 if self.length > _SHORTEST_LINGER else 0
        elif rows < train // 4:
            self.length = min(self.limit, max(2 * self.length, _SHORTEST_LINGER))
