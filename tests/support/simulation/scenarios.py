"""Small scenarios of the simulator, in microseconds, and functions that read their results."""

from __future__ import annotations

from typing import Any

from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.scenario import (
    ArrivalKind,
    OperatorSpec,
    QuerySpec,
    Scenario,
    Service,
    SourceSpec,
    StatisticsKind,
    StreamSpec,
)

US = 1000


def recorded(name: str, *microseconds: float) -> StreamSpec:
    return StreamSpec(
        name, 0, ArrivalKind.RECORDED, offsets=tuple(moment / 1_000_000 for moment in microseconds)
    )


def output(inputs: str, cost: float = 0.0, setup: float = 0.0) -> OperatorSpec:
    return OperatorSpec("out", "output", (inputs,), cost * US, setup * US)


def select(name: str, inputs: str, cost: float, **more: Any) -> OperatorSpec:
    return OperatorSpec(name, "select", (inputs,), cost * US, **more)


def query(id_: str, *operators: OperatorSpec, class_name: str = "c") -> QuerySpec:
    return QuerySpec(id_, class_name, operators)


def direct(*queries: QuerySpec, streams: tuple[StreamSpec, ...], **more: Any) -> Scenario:
    return Scenario(
        "small",
        priorities={one.class_name: 1 for one in queries},
        streams=streams,
        queries=queries,
        **{"sources": SourceSpec(Service.DIRECT), "statistics": StatisticsKind.DECLARED, **more},
    )


def departures_us(result: Result, id_: str) -> list[float]:
    return [moment / US for moment in result.queries[id_].departures.tolist()]


def responses_us(result: Result, id_: str) -> list[float]:
    return [time / US for time in result.queries[id_].responses.tolist()]
