"""Linger: the control loop that decides how long a source waits for more rows."""

from __future__ import annotations

from mavstream_server.scheduling.policy import LONGEST_WAIT

_SHORTEST = 50_000  # ns


class Linger:
    """How long a source waits for more rows before it emits a small batch.

    Larger batches cost less per row. So while the engine is busy, the wait doubles after each small batch,
    and halves after a large one; an idle engine never waits. It is bounded by what the query can afford: a
    quarter of its latency target, at most 50 ms. A query without a target waits only as long as the policy
    permits (`may_wait`). That other queries keep the engine busy is in itself no reason to wait.
    """

    __slots__ = ("length", "limit", "planned")

    def __init__(self) -> None:
        self.limit = LONGEST_WAIT
        """The longest wait (ns)."""
        self.planned = False
        """Whether a latency target leaves room for waiting, so that it needs no permission."""
        self.length = 0
        """The present wait (ns), where waiting is possible."""

    def aim_at(self, target: int | None) -> None:
        """Wait at most a quarter of a latency target (us); None for no target."""
        self.bound(LONGEST_WAIT if target is None else target * 1000 // 4, target is not None)

    def bound(self, limit: int, planned: bool) -> None:
        """Set the longest wait (ns), and whether it needs no permission."""
        self.limit = min(LONGEST_WAIT, limit)
        self.planned = planned
        self.length = min(self.length, self.limit)

    def wait(self, permitted: int) -> int:
        """Return how long to wait from now on (ns), given what the policy permits."""
        return min(self.length, self.limit if self.planned else permitted)

    def adapt(self, rows: int, train: int, idle: bool, permitted: int) -> None:
        """Adapt the wait to a batch of `rows`, where `train` rows are a full one."""
        most = self.limit if self.planned else min(self.limit, permitted)
        if idle or rows >= train // 2 or not most:
            self.length = self.length // 2 if self.length > _SHORTEST else 0
        elif rows < train // 4:
            self.length = min(most, max(2 * self.length, _SHORTEST))
