"""Simulated queries, as seen by policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.view import OperatorKind, OperatorView
from mavstream_server.simulation.model.records import Record

if TYPE_CHECKING:
    from mavstream_server.simulation.model.operators import SimulatedOperator
    from mavstream_server.simulation.model.sources import SourceOperator


class SimulatedQuery:
    """A query with its operators, bottom-up."""

    weight = 1

    def __init__(self, id_: str, class_name: str, latency_target: int | None = None) -> None:
        self.id = id_
        self.class_name = class_name
        self.latency_target = latency_target
        self.tasks: list[SimulatedOperator] = []
        """Operators without sources."""
        self.sources: list[SourceOperator] = []
        """Sources, if policies run them."""
        self.operators: Sequence[OperatorView] = ()
        self.paths: Sequence[Sequence[OperatorView]] = ()
        self.units: QueryUnits

    @property
    def record(self) -> Record:
        """Record of the query's answers."""
        record = self.tasks[-1].record
        assert record is not None
        return record

    def arrange(self) -> None:
        """Set the operators and paths that policies see; a path starts at a source, or else at a leaf."""
        self.operators = [*self.sources, *self.tasks]
        sources: list[OperatorView] = [*self.sources]
        sources += [task for task in self.tasks if task.kind is OperatorKind.SOURCE]
        if sources:
            self.paths = [_upwards(source) for source in sources]
        else:
            self.paths = [_upwards(task) for task in self.tasks if task.leaf for _ in range(task.streams)]
        self.units = QueryUnits(self)


def _upwards(operator: OperatorView) -> list[OperatorView]:
    path = [operator]
    while path[-1].downstream:
        path.append(path[-1].downstream[0])
    return path
