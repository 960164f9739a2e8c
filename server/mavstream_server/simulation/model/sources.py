"""Simulated source operators, which read the tuples of a stream and pass them on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mavstream_server.scheduling.view import OperatorKind
from mavstream_server.simulation.model.arrivals import ArrivalTimes
from mavstream_server.simulation.model.base_operator import BaseOperator, Call
from mavstream_server.simulation.scenario import OperatorSpec, SourceSpec

if TYPE_CHECKING:
    from mavstream_server.simulation.model.queries import SimulatedQuery


class VirtualClock:
    """The current virtual time, in nanoseconds."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0


class SourceOperator(BaseOperator):
    """A source. It belongs to a query if policies run it; otherwise it serves all readers of its stream."""

    __slots__ = ("_clock", "_restamp", "_train", "appends", "arrivals")

    def __init__(
        self,
        number: int,
        arrivals: ArrivalTimes,
        query: SimulatedQuery,
        spec: SourceSpec,
        clock: VirtualClock,
        restamp: bool,
    ) -> None:
        """`restamp`: response times start when the source reads a tuple."""
        own = OperatorSpec(arrivals.name, "source", (), spec.cost, spec.setup, size=arrivals.size)
        super().__init__(number, own, query, OperatorKind.SOURCE, np.random.SeedSequence(0))
        self.arrivals = arrivals
        self.appends = False
        self._train = spec.train
        self._clock = clock
        self._restamp = restamp

    @property
    def consumed(self) -> int:
        """Tuples read since the start."""
        return self.arrivals.read

    @property
    def queued(self) -> int:
        """Tuples that have arrived and have not been read."""
        return self.arrivals.waiting(self._clock.now)

    @property
    def queued_bytes(self) -> int:
        """Bytes of the queued tuples."""
        return int(self.queued * self.arrivals.size)

    @property
    def oldest(self) -> int | None:
        """Arrival time of the next tuple to be read, or None."""
        return self.arrivals.next if self.arrivals.next <= self._clock.now else None

    def has_work(self) -> bool:
        """Return whether tuples have arrived."""
        return self.arrivals.next <= self._clock.now

    def read(self, begin: int, factor: float) -> tuple[int, list[int]]:
        """Read at most a train of tuples; return the end time and the tuples."""
        batch = self.arrivals.take(begin, self._train)
        end = begin + int((self.setup + len(batch) * self.cost) * factor)
        return end, [begin] * len(batch) if self._restamp else batch

    def work(self, begin: int, most: int | None, stop: int | None, factor: float) -> Call:
        """Read as an operator run by a policy: at most a train, and at most what the slice allows."""
        train = self._train
        if most is not None and most < train:
            self._train = most
        end, batch = self.read(begin, factor)
        self._train = train
        self.count_call(len(batch), len(batch), end - begin)
        return len(batch), batch, end, 0

    def may_read(self) -> bool:
        """Return whether its previous output has been consumed, or a whole train waits.

        Under load, tuples thus accumulate in the stream, as in the live engine, and calls process larger
        batches.
        """
        sole_reader = self.sole_reader
        if sole_reader is not None:
            taken = sole_reader.head == len(sole_reader.waiting)
        else:
            taken = all(reader.is_empty_at(port) for reader, port in self.readers)
        return taken or self.arrivals.at_least(self._train, self._clock.now)
