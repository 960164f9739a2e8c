"""Base of simulated operators: position in the query, costs, selectivity and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mavstream_server.scheduling.statistics import Statistics, StatisticsCollector
from mavstream_server.scheduling.view import OperatorKind
from mavstream_server.simulation.model.records import Record
from mavstream_server.simulation.model.selection import Selection
from mavstream_server.simulation.scenario import OperatorSpec

if TYPE_CHECKING:
    from mavstream_server.simulation.model.operators import SimulatedOperator
    from mavstream_server.simulation.model.queries import SimulatedQuery

FREE = -1
"""Core number of an operator that is not running."""

Readers = tuple[tuple["SimulatedOperator", int], ...]
"""Reading operators, each with the number of its input."""
Call = tuple[int, Sequence[int], int, int]
"""Outcome of a call of an operator: tuples consumed, arrival times of the output tuples, end time, and the
sum of the response times of answers. Not a named tuple, which takes three times as long to create."""


class BaseOperator:
    """An operator with its statistics; subclasses implement the queue of waiting tuples."""

    __slots__ = (
        "_collector",
        "_consumed",
        "_produced",
        "calls",
        "core",
        "cost",
        "downstream",
        "elapsed",
        "input_size",
        "kind",
        "leaf",
        "number",
        "operator",
        "per_output",
        "plain",
        "progress",
        "query",
        "readers",
        "ready",
        "record",
        "rows_in",
        "rows_out",
        "selection",
        "setup",
        "sole_reader",
        "spec",
        "statistics",
    )

    def __init__(
        self,
        number: int,
        spec: OperatorSpec,
        query: SimulatedQuery,
        kind: OperatorKind,
        seed: np.random.SeedSequence,
    ) -> None:
        self.number = number
        self.spec = spec
        self.query = query
        self.kind = kind
        self.operator = spec.kind
        self.leaf = False
        self.downstream: tuple[SimulatedOperator, ...] = ()
        self.readers: Readers = ()
        """Those of an output are operators of other queries, which are not among `downstream`."""
        self.sole_reader: SimulatedOperator | None = None
        """The only reader, if there is just one and it appends its input to one queue."""
        self.setup, self.cost, self.per_output = spec.setup, spec.cost, spec.per_output
        self.selection = Selection(spec.selectivity, spec.random, seed) if spec.selectivity != 1 else None
        self.plain = False
        """Whether it has a single queue and costs that depend only on the number of tuples."""
        self.core = FREE
        """Number of the core that runs it, or FREE."""
        self.ready = False
        """Whether tuples wait or are being processed."""
        self.progress = 0
        self.record: Record | None = None
        """Record of the answers of an output."""
        self._consumed = self._produced = 0
        self.rows_in = self.rows_out = self.elapsed = self.calls = 0
        """Since statistics were last published."""
        self.input_size = spec.size
        """Bytes of a tuple that comes from a stream."""
        self.statistics = self.true_statistics()
        self._collector: StatisticsCollector | None = StatisticsCollector(self.statistics)

    def connect(self, readers: Readers) -> None:
        """Set the readers of the output."""
        self.readers = readers
        self.downstream = tuple(reader for reader, _ in readers)
        if len(readers) == 1 and self.downstream[0].appends:
            self.sole_reader = self.downstream[0]

    @property
    def consumed(self) -> int:
        """Input tuples since the start."""
        return self._consumed + self.rows_in

    @property
    def produced(self) -> int:
        """Output tuples since the start."""
        return self._produced + self.rows_out

    @property
    def selectivity(self) -> float:
        """Current number of output tuples per input tuple."""
        return 1.0 if self.selection is None else self.selection.selectivity

    def true_statistics(self) -> Statistics:
        """Return the current true statistics."""
        cost = self.cost + self.per_output * self.selectivity
        size = self.spec.size
        return Statistics(self.setup + cost, cost, self.selectivity, size, input_size=self.input_size)

    def set_input_size(self, size: float) -> None:
        """Set the size of the tuples of the streams that it reads."""
        self.input_size = size
        self.statistics = self.true_statistics()
        self._collector = StatisticsCollector(self.statistics)

    def count_call(self, rows_in: int, rows_out: int, elapsed: int, calls: int = 1) -> None:
        """Count a call; negative numbers undo one."""
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.elapsed += elapsed
        self.calls += calls

    def use_true_statistics(self) -> None:
        """Publish true statistics from now on, instead of measured ones."""
        self._collector = None
        self.statistics = self.true_statistics()

    def publish(self) -> bool:
        """Publish measured statistics; return False if true statistics are used."""
        self._consumed += self.rows_in
        self._produced += self.rows_out
        if self._collector is not None:
            size = int(self.rows_out * self.spec.size)
            self._collector.add(self.rows_in, self.rows_out, size, self.elapsed, self.calls)
            self.statistics = self._collector.published
        self.rows_in = self.rows_out = self.elapsed = self.calls = 0
        if self.record is not None:
            self.record.pack()
        return self._collector is not None

    def change(self, selectivity: float | None = None, cost: float | None = None) -> None:
        """Change the selectivity or the cost from now on."""
        if cost is not None:
            self.cost = cost
        if selectivity is not None:
            if self.selection is None:
                seed = np.random.SeedSequence(self.number)
                self.selection = Selection(selectivity, self.spec.random, seed)
            else:
                self.selection.change(selectivity)
        if self._collector is None:
            self.statistics = self.true_statistics()
