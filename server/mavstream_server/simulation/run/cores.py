"""Cores: what each is doing."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.scheduling.view import Report, Slice
from mavstream_server.simulation.model.base_operator import BaseOperator, Call, Readers
from mavstream_server.simulation.model.operators import SimulatedOperator
from mavstream_server.simulation.model.sources import SourceOperator

Single = tuple[SimulatedOperator, int, Call, float, int]
"""A call that is all that a slice does, so that it can be cut off: the operator, when it began, what it does,
what its costs were multiplied by, and the progress of the head of the queue before it."""


class Core:
    """A core, and the slice or the sources that it is busy with."""

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
        """When it began."""
        self.due = -1
        """The running number of the event that ends it."""
        self.report = Report(0, 0, 0)
        """What will have become of it then."""
        self.single: Single | None = None
        self.outbox: list[tuple[Readers, Sequence[int]]] = []
        """What it hands on then."""
        self.source_outbox: list[tuple[SourceOperator, Sequence[int]]] = []
        """What sources hand on then, if it serves some."""
        self.last: BaseOperator | None = None
        """The operator that it ran last."""
        self.busy = 0
        """Nanoseconds so far."""
        self.switches = self.empty_visits = 0
