"""Simulated joins with separate queues for their two sides."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from mavstream_server.scheduling.view import OperatorKind
from mavstream_server.simulation.model.arrivals import NEVER
from mavstream_server.simulation.model.base_operator import Call
from mavstream_server.simulation.model.operators import LONG, SimulatedOperator
from mavstream_server.simulation.model.queries import SimulatedQuery
from mavstream_server.simulation.scenario import OperatorSpec


class JoinOperator(SimulatedOperator):
    """A join. Whether a tuple finds a partner depends on the selectivity; values are not simulated.

    A joined tuple has the later of two arrival times: its own, or that of the newest partner that was
    processed before, which is at most a window ahead. If synchronised, a tuple waits until a tuple that is
    as late or later has arrived at the other side, as operators do to keep their output in order of time
    (dissertation, 6.3.3, where one class has a slow stream). Joins with a window of 0 that are not
    synchronised need no separate sides and are ordinary operators.
    """

    __slots__ = ("_before", "_heads", "_received", "_seen", "_sides", "_window")

    def __init__(
        self,
        number: int,
        spec: OperatorSpec,
        query: SimulatedQuery,
        kind: OperatorKind,
        seed: np.random.SeedSequence,
    ) -> None:
        super().__init__(number, spec, query, kind, seed)
        self._always_plain = self.plain = self.appends = False
        self._window = NEVER if spec.window is None else int(spec.window)
        self._sides: list[list[int]] = [[], []]
        self._heads = [0, 0]
        self._seen = [-1, -1]  # newest arrival time of each side that was processed
        self._received = [-1, -1]  # newest arrival time of each side that was received
        # Taken by the last call: side, tuples, `_seen` before.
        self._before: list[tuple[int, list[int], list[int]]] = []

    @property
    def queued(self) -> int:
        """Tuples that wait at both sides."""
        return len(self._sides[0]) + len(self._sides[1]) - sum(self._heads)

    @property
    def oldest(self) -> int | None:
        """Arrival time of the oldest waiting tuple, or None."""
        heads = zip(self._sides, self._heads, strict=True)
        return min((side[head] for side, head in heads if head < len(side)), default=None)

    def receive(self, batch: Sequence[int], port: int) -> None:
        """Append tuples to the queue of a side."""
        if batch:
            self._sides[port] += batch
            self._received[port] = max(self._received[port], batch[-1])

    def is_empty_at(self, port: int) -> bool:
        """Return whether nothing waits at a side."""
        return self._heads[port] == len(self._sides[port])

    def has_work(self) -> bool:
        """Return whether there are tuples that it can process."""
        return self._may_take(0) + self._may_take(1) > 0

    def work(self, begin: int, most: int | None, stop: int | None, factor: float) -> Call:
        """Process waiting tuples, except those that wait for the other side."""
        if self.spec.synchronised:
            eligible = self._may_take(0) + self._may_take(1)
            most = eligible if most is None else min(most, eligible)
        return super().work(begin, most, stop, factor)

    def stop_waiting(self) -> None:
        """Stop waiting for the other side, because the streams have ended."""
        self._received = [NEVER, NEVER]

    def _may_take(self, port: int) -> int:
        side, head = self._sides[port], self._heads[port]
        if not self.spec.synchronised:
            return len(side) - head
        return bisect_right(side, min(self._received), head) - head

    def take(self, count: int) -> list[int]:
        """Take tuples of the side with the older head, then of the other; return their arrival times."""
        sides, heads, there = self._sides, self._heads, (self._may_take(0), self._may_take(1))
        first = 0 if there[0] else 1
        if there[0] and there[1] and sides[1][heads[1]] < sides[0][heads[0]]:
            first = 1
        self._before.clear()
        taken = min(count, there[first])
        carried = self._take_side(first, taken)
        if count > taken:
            carried = carried + self._take_side(1 - first, count - taken)
        return carried

    def _take_side(self, port: int, count: int) -> list[int]:
        side, head = self._sides[port], self._heads[port]
        end = head + count
        batch = side[head:end]
        self._heads[port] = end
        if end == len(side):
            self._sides[port], self._heads[port] = [], 0
        elif end > LONG and 2 * end > len(side):
            del side[:end]
            self._heads[port] = 0
        self._before.append((port, batch, self._seen.copy()))
        self._seen[port] = max(self._seen[port], max(batch))
        newest, window = self._seen[1 - port], self._window
        if newest <= min(batch):
            return batch
        return [min(max(one, newest), one + window) for one in batch]

    def put_back_taken(self) -> None:
        """Put the tuples of the last call back into the queues."""
        for port, batch, seen in reversed(self._before):
            self._sides[port] = batch + self._sides[port][self._heads[port] :]
            self._heads[port] = 0
            self._seen = seen
