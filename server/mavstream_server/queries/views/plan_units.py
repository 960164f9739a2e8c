"""Scheduling units of a query's plan: paths, segments and simplified segments with their capacities.

Computed from the statistics that an engine reports, independently of the current policy and of sharing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mavstream_protocol.classes import DEFAULT_CLASS
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_protocol.wire.plans import OperatorUnit
from mavstream_protocol.wire.resources import OperatorInfo
from mavstream_server.core.metrics import OperatorMetrics
from mavstream_server.planning.paths import OUTPUT, paths_to_output
from mavstream_server.scheduling.mechanisms.segments import Unit, unit
from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.policies.simplified_segment import SimplifiedSegmentOptions
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import OperatorKind, OperatorView

_SECOND = 1e9
_OPTIONS = SimplifiedSegmentOptions()


@dataclass(eq=False, slots=True)
class _Operator:
    """An operator of a plan with its reported metrics, as policies see it; its queues are empty."""

    number: int
    name: str
    kind: OperatorKind
    operator: str
    leaf: bool
    query: _Query
    statistics: Statistics
    downstream: list[_Operator] = field(default_factory=list)
    ready: bool = False
    queued: int = 0
    queued_bytes: int = 0
    oldest: int | None = None
    progress: int = 0


class _Query:
    """A plan as policies see a query, without its sources."""

    id = ""
    class_name = DEFAULT_CLASS
    weight = 1
    latency_target = None

    def __init__(self, plan: TypedPlan, stats: Iterable[OperatorMetrics]) -> None:
        known = {one.name: one for one in stats}
        made: dict[str, _Operator] = {}
        sources = {node.name for node in plan.sources}
        inputs = {name: [below.node for below in node.inputs] for name, node in plan.nodes.items()}
        for name, below in {**inputs, OUTPUT: [plan.root.node]}.items():
            if name not in known or name in sources:
                continue
            leaf = any(one in sources for one in below)
            made[name] = _operator(len(made), known[name], leaf, self)
            for one in dict.fromkeys(below):
                if one in made:
                    made[one].downstream.append(made[name])
        self.operators: Sequence[_Operator] = list(made.values())
        self.paths: Sequence[Sequence[_Operator]] = [
            [made[name] for name in path] for path in paths_to_output(plan) if made
        ]
        self.units = QueryUnits(self)


class PlanUnits:
    """The scheduling units of a running plan, by node names."""

    def __init__(self, plan: TypedPlan, stats: Sequence[OperatorMetrics]) -> None:
        nodes = {name for name, node in plan.nodes.items() if node.has_operator}
        # The metrics may still be of the previous plan: then there are no units.
        self._query = _Query(plan, stats if {one.name for one in stats} >= nodes else ())

    @property
    def paths(self) -> tuple[OperatorUnit, ...]:
        """Operator paths."""
        return _unit_infos(self._query.units.paths)

    @property
    def segments(self) -> tuple[OperatorUnit, ...]:
        """Segments, with held answers."""
        return _unit_infos(self._query.units.segments())

    @property
    def simplified_segments(self) -> tuple[OperatorUnit, ...]:
        """Simplified segments, with the policy's default options."""
        return _unit_infos(self._query.units.simplified_segments(_OPTIONS.gamma, _OPTIONS.answers))

    def described(self, operators: Iterable[OperatorInfo]) -> tuple[OperatorInfo, ...]:
        """Return operators with their individual capacities."""
        alone = {
            _name(stage.operator): unit((stage,)) for route in self._query.units.routes for stage in route
        }
        return tuple(
            one
            if one.name not in alone
            else one.model_copy(
                update={
                    "processing_capacity": alone[one.name].processing * _SECOND,
                    "memory_release_capacity": alone[one.name].release * _SECOND,
                }
            )
            for one in operators
        )


def _operator(number: int, stats: OperatorMetrics, leaf: bool, query: _Query) -> _Operator:
    statistics = Statistics(
        cost_per_tuple=stats.cost_per_tuple_ns,
        selectivity=stats.selectivity,
        tuple_size=stats.tuple_bytes,
        tuples=stats.tuples,
        input_size=stats.input_bytes,
    )
    return _Operator(number, stats.name, OperatorKind(stats.kind), stats.operator, leaf, query, statistics)


def _unit_infos(units: Iterable[Unit]) -> tuple[OperatorUnit, ...]:
    return tuple(
        OperatorUnit(
            operators=tuple(_name(operator) for operator in one.operators),
            processing_capacity=one.processing * _SECOND,
            memory_release_capacity=one.release * _SECOND,
        )
        for one in units
    )


def _name(operator: OperatorView) -> str:
    assert isinstance(operator, _Operator)
    return operator.name
