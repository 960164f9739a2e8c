"""Demand of a scenario: the work that its tuples cause, and scaling to a utilisation.

Only work on tuples counts, over all paths; set-up and other overheads are extra, and shrink as batches grow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mavstream_server.simulation.scenario import (
    SECOND,
    ArrivalKind,
    Change,
    OperatorSpec,
    QuerySpec,
    Scenario,
    Service,
    StreamSpec,
    answers_of,
)


def mean_rate(stream: StreamSpec) -> float:
    """Return the mean tuples per second of a stream, before its rate changes."""
    if stream.kind is ArrivalKind.RECORDED:
        return len(stream.offsets) / max(stream.offsets[-1], 1e-9)
    if stream.kind is ArrivalKind.BURSTY and stream.burst is not None:
        burst = stream.burst
        tuples = stream.rate * burst.high_s + burst.low_rate * burst.low_s
        return tuples / (burst.high_s + burst.low_s)
    return stream.rate


class QueryDemand(NamedTuple):
    """What streams of certain rates cause in a query."""

    work: float
    """Nanoseconds per second."""
    answers: float
    """Answers per second."""


def query_demand(operators: Sequence[OperatorSpec], rates: Mapping[str, float]) -> QueryDemand:
    """Return the demand of a query; `rates` include those of the answers that it reads."""
    reach, work, rate = dict(rates), 0.0, 0.0
    for operator in operators:
        tuples = sum(reach[name] for name in operator.inputs)
        work += tuples * (operator.cost + operator.selectivity * operator.per_output)
        reach[operator.name] = rate = tuples * operator.selectivity
    return QueryDemand(work, rate)


def utilisation(scenario: Scenario, rate: float | None = None) -> float:
    """Return the share of the cores' time for work on tuples; `rate` overrides the rates of all streams."""
    rates = {stream.name: mean_rate(stream) if rate is None else rate for stream in scenario.streams}
    work = sum(rates.values()) * scenario.sources.cost if shares_cores(scenario) else 0.0
    for query in scenario.queries:
        demand = query_demand(query.operators, rates)
        work += demand.work
        rates[answers_of(query.id)] = demand.answers
    return work / SECOND / scenario.cores


def shares_cores(scenario: Scenario) -> bool:
    """Return whether sources run on the cores of the operators."""
    own = scenario.sources.cores > 0 or scenario.cores > 1
    service = scenario.sources.service
    return service not in (Service.DIRECT, Service.OWN_CORE) and not (own and service is Service.POLICY)


def scale_costs(scenario: Scenario, target: float, rate: float | None = None) -> Scenario:
    """Return the scenario with per-tuple costs scaled to the target utilisation."""
    present = utilisation(scenario, rate)
    if not present:
        return scenario
    factor = target / present
    sources = scenario.sources
    if shares_cores(scenario):
        sources = replace(sources, cost=sources.cost * factor)
    return replace(
        scenario,
        queries=tuple(_operators(query, lambda one: _dearer(one, factor)) for query in scenario.queries),
        sources=sources,
        changes=tuple(_dearer_change(change, factor) for change in scenario.changes),
    )


def scale_rates(scenario: Scenario, target: float) -> Scenario:
    """Return the scenario with rates scaled to the target utilisation."""
    present = utilisation(scenario)
    if not present:
        return scenario
    return replace(scenario, streams=tuple(_faster(one, target / present) for one in scenario.streams))


def _operators(query: QuerySpec, change: Callable[[OperatorSpec], OperatorSpec]) -> QuerySpec:
    return replace(query, operators=tuple(change(operator) for operator in query.operators))


def _dearer(operator: OperatorSpec, factor: float) -> OperatorSpec:
    return replace(operator, cost=operator.cost * factor, per_output=operator.per_output * factor)


def _dearer_change(change: Change, factor: float) -> Change:
    return replace(change, costs={operator: cost * factor for operator, cost in change.costs.items()})


def _faster(stream: StreamSpec, factor: float) -> StreamSpec:
    burst = stream.burst
    return replace(
        stream,
        rate=stream.rate * factor,
        rates=tuple((at, rate * factor) for at, rate in stream.rates),
        burst=None if burst is None else replace(burst, low_rate=burst.low_rate * factor),
    )
