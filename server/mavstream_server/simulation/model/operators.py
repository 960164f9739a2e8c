"""Simulated operators: queues of arrival times, and a cost model instead of real work.

There is no object per tuple. A queue is a list of arrival times, a call processes the first of them, and
random numbers are drawn in blocks. Batches are short when decisions are frequent, and for a dozen tuples
plain lists are several times as fast as arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import ceil

import numpy as np

from mavstream_server.scheduling.view import OperatorKind
from mavstream_server.simulation.model.base_operator import BaseOperator, Call
from mavstream_server.simulation.model.queries import SimulatedQuery
from mavstream_server.simulation.model.records import Record
from mavstream_server.simulation.scenario import CostKind, OperatorSpec

LONG = 1024
"""Tuples taken from the head of a queue after which the rest is moved to the front."""
_COSTS = 1024  # random costs drawn at a time


class VaryingCosts:
    """Exponential costs per tuple; a tuple that is repeated after a preemption keeps its cost."""

    __slots__ = ("_at", "_block", "_generator")

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self._generator = np.random.default_rng(seed)
        self._block: list[float] = []
        self._at = 0

    def draw(self, tuples: int, mean: float) -> list[float]:
        """Return the costs of the next tuples."""
        if self._at + tuples > len(self._block):
            more = self._generator.exponential(size=max(_COSTS, tuples)).tolist()
            self._block = self._block[self._at :] + more
            self._at = 0
        self._at += tuples
        return self.last(tuples, mean)

    def last(self, tuples: int, mean: float) -> list[float]:
        """Return the costs of the last tuples."""
        return [cost * mean for cost in self._block[self._at - tuples : self._at]]

    def put_back(self, tuples: int) -> None:
        """Return the costs of the last tuples to the generator: these tuples will be repeated."""
        self._at -= tuples


class SimulatedOperator(BaseOperator):
    """An operator with one queue, run by the driver and seen by policies.

    Outputs and unions are not separate classes: the interpreter reads attributes several times as fast where
    it meets only one class.
    """

    __slots__ = ("_always_plain", "_varying", "appends", "head", "size_in", "streams", "taken", "waiting")

    def __init__(
        self,
        number: int,
        spec: OperatorSpec,
        query: SimulatedQuery,
        kind: OperatorKind,
        seed: np.random.SeedSequence,
    ) -> None:
        chance, costs = seed.spawn(2)
        super().__init__(number, spec, query, kind, chance)
        self._varying = VaryingCosts(costs) if spec.varies is CostKind.EXPONENTIAL else None
        self._always_plain = self._varying is None and not self.per_output
        self.plain = self._always_plain
        self.appends = len(spec.inputs) == 1 or spec.kind == "join"
        """Whether input is appended to `waiting`; otherwise it is inserted in order of time."""
        if kind is OperatorKind.OUTPUT:
            self.record = Record()
        self.streams = 0
        """Number of streams that it reads; at least one for a leaf."""
        self.size_in = 64.0
        """Bytes of an input tuple."""
        self.waiting: list[int] = []
        """Arrival times of waiting tuples, from `head` on; without those that are being processed."""
        self.head = 0
        self.taken: list[int] = []
        """Tuples taken by the last call."""

    @property
    def queued(self) -> int:
        """Waiting tuples."""
        return len(self.waiting) - self.head

    @property
    def queued_bytes(self) -> int:
        """Bytes of waiting tuples."""
        return int(self.queued * self.size_in)

    @property
    def oldest(self) -> int | None:
        """Arrival time of the oldest waiting tuple, or None."""
        return self.waiting[self.head] if self.head < len(self.waiting) else None

    @property
    def received(self) -> int:
        """Tuples received since the start."""
        return self.consumed + self.queued

    def receive(self, batch: Sequence[int], port: int) -> None:
        """Add tuples to the queue: at the end, or in order of time."""
        waiting = self.waiting
        if self.appends or not batch or self.head == len(waiting) or batch[0] >= waiting[-1]:
            waiting += batch
        else:
            index = bisect_right(waiting, batch[0], self.head)
            waiting[index:] = sorted([*waiting[index:], *batch])

    def is_empty_at(self, port: int) -> bool:
        """Return whether nothing waits at an input."""
        return self.head == len(self.waiting)

    def has_work(self) -> bool:
        """Return whether tuples wait."""
        return self.head < len(self.waiting)

    # Processing

    def work(self, begin: int, most: int | None, stop: int | None, factor: float) -> Call:
        """Process waiting tuples: at most `most`, and until the time `stop`.

        All costs of the call are multiplied by `factor`.
        """
        if not self.plain:
            return self._work(begin, most, stop, factor)
        waiting, head = self.waiting, self.head
        there = count = len(waiting) - head
        if most is not None and most < count:
            count = most
        setup, cost = self.setup * factor, self.cost * factor
        if stop is not None and cost and count * cost > stop - begin - setup:
            count = min(count, max(ceil((stop - begin - setup) / cost), 1))
        if count == there:
            out = batch = waiting[head:] if head else waiting
            self.waiting, self.head = [], 0
        else:
            end = head + count
            out = batch = waiting[head:end]
            if end > LONG and 2 * end > len(waiting):
                del waiting[:end]
                end = 0
            self.head = end
        self.taken = batch
        took, response = int(setup + count * cost), 0
        if self.record is not None:
            response = self.record.add(batch, begin + int(setup), cost)
        elif self.selection is not None:
            out = self.selection.pick(batch)
        self.rows_in += count
        self.rows_out += len(out)
        self.elapsed += took
        self.calls += 1
        return count, out, begin + took, response

    def _work(self, begin: int, most: int | None, stop: int | None, factor: float) -> Call:
        """Process where the head is partly done, or where costs are not constant per tuple."""
        count = self.queued
        if most is not None and most < count:
            count = most
        if self._varying is not None:
            return self._work_varying(begin, count, stop, factor)
        setup, cost = self.setup * factor, self.cost * factor
        if stop is not None:
            count = self._within(count, stop - begin - setup, cost)
        batch = self.take(count)
        out = batch if self.selection is None else self.selection.pick(batch)
        took = int(setup + count * cost + len(out) * self.per_output * factor - self.progress)
        response = 0
        if self.record is not None:
            response = self.record.add(out, begin + int(setup) - self.progress, cost)
        self.progress, self.plain = 0, self._always_plain
        self.count_call(count, len(out), took)
        return count, out, begin + took, response

    def _work_varying(self, begin: int, count: int, stop: int | None, factor: float) -> Call:
        assert self._varying is not None
        costs = self._varying.draw(count, self.cost * factor)
        costs[0] -= self.progress
        begun = begin + self.setup * factor
        if stop is not None:
            fits = 1 + sum(begun + done < stop for done in accumulate(costs[:-1]))
            self._varying.put_back(count - fits)
            count = fits
        batch = self.take(count)
        out = batch if self.selection is None else self.selection.pick(batch)
        response = 0
        if self.record is not None:
            response = self.record.add_each(out, [int(begun + done) for done in accumulate(costs[:count])])
        took = int(begun + sum(costs[:count]) + len(out) * self.per_output * factor) - begin
        self.progress = 0
        self.count_call(count, len(out), took)
        return count, out, begin + took, response

    def _within(self, count: int, time: float, cost: float) -> int:
        """Return how many tuples are started within a time: at least one."""
        cost += self.per_output * self.selectivity
        if not cost or count * cost <= time:
            return count
        return min(count, max(ceil((time + self.progress) / cost), 1))

    def take(self, count: int) -> list[int]:
        """Take tuples from the head of the queue."""
        waiting, head = self.waiting, self.head
        end = head + count
        if end == len(waiting):
            self.taken = waiting[head:] if head else waiting
            self.waiting = []
            self.head = 0
            return self.taken
        self.taken = waiting[head:end]
        if end > LONG and 2 * end > len(waiting):
            del waiting[:end]
            end = 0
        self.head = end
        return self.taken

    # Preemption

    def undo(self, begin: int, call: Call) -> None:
        """Undo the last call, which started at `begin`: its tuples wait again."""
        count, out, end, _ = call
        self.count_call(-count, -len(out), begin - end, -1)
        self.put_back_taken()
        if self.selection is not None:
            self.selection.put_back(count)
        if self._varying is not None:
            self._varying.put_back(count)
        if self.record is not None:
            self.record.undo(count)

    def set_progress(self, progress: int) -> None:
        """Store the work (ns) that was done on the head of the queue."""
        self.progress = progress
        self.plain = self._always_plain and not progress

    def put_back_taken(self) -> None:
        """Put the tuples of the last call back into the queue."""
        self.waiting = self.taken + self.waiting[self.head :]
        self.head = 0

    def done_by(self, now: int, begin: int, call: Call, factor: float, progress: int) -> tuple[int, int]:
        """Return how many tuples of a call were finished at a time, and the time spent on the next one.

        `progress` is the work that had been done on the first one before the call.
        """
        count, _, end, _ = call
        setup = self.setup * factor
        left = now - begin - setup
        if left <= 0:
            return 0, progress
        left += progress
        if self._varying is not None:
            costs = self._varying.last(count, self.cost * factor)
        else:
            costs = [(end - begin - setup + progress) / count] * count
        done = 0
        while done < count - 1 and costs[done] <= left:
            left -= costs[done]
            done += 1
        return done, int(left)
