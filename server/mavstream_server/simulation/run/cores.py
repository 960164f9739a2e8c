"""State of the simulated cores."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.scheduling.view import Report, Slice
from mavstream_server.simulation.model.base_operator import BaseOperator, Call, Readers
from mavstream_server.simulation.model.operators import SimulatedOperator
from mavstream_server.simulation.model.sources import SourceOperator

Single = tuple[SimulatedOperator, int, Call, float, int]
"""The only call of a slice, which can therefore be preempted: operator, start time, outcome, cost factor, and
the progress of the head of the queue before the call."""


class Core:
    """A core with the slice or the sources that it runs."""

    __slots__ = (
        "begin",
        "busy",
        "due",
        "empty_visits",
        "last",
        "number",
        "outbox",
        "report",
        "single",
        "slice",
        "source_outbox",
        "switches",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.slice: Slice | None = None
        self.begin = 0
        """Start time of the slice."""
        self.due = -1
        """Sequence number of the event that ends the slice."""
        self.report = Report(0, 0, 0)
        """Outcome of the slice at its end."""
        self.single: Single | None = None
        self.outbox: list[tuple[Readers, Sequence[int]]] = []
        """Tuples that are passed to operators outside of the slice at its end."""
        self.source_outbox: list[tuple[SourceOperator, Sequence[int]]] = []
        """Tuples that sources pass on at the end, if the core runs sources."""
        self.last: BaseOperator | None = None
        """The operator that it ran last."""
        self.busy = 0
        """Busy time so far, in nanoseconds."""
        self.switches = self.empty_visits = 0
