"""Model of workload files. Names that end in `_us` are microseconds, in `_s` seconds.

A file is read in three steps: arithmetic is evaluated with its parameters, this model validates the content,
and `expansion` expands families of queries.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mavstream_server.simulation.scenario import (
    Accounting,
    ArrivalKind,
    ResponseFrom,
    Service,
    SourceOrder,
    StatisticsKind,
    SwitchPoint,
)
from mavstream_server.simulation.workload.query_model import (
    Costs,
    NotNegative,
    OperatorPart,
    Part,
    Positive,
    QueryPart,
)

Share = Annotated[float, Field(gt=0, le=1.5)]


class Parameter(Part):
    """A number that a run may set and formulas may use."""

    default: float | str
    """A number, or a formula of other parameters."""
    least: float | None = None
    most: float | None = None


class ClassPart(Part):
    """A class of queries."""

    priority: Annotated[int, Field(gt=0)]
    latency_us: Positive | None = None
    """Latency target of its queries that have none of their own."""


class BurstPart(Part):
    """Alternating high and low rates, for `bursty` arrivals; the stream's rate is the high one."""

    high_s: Positive
    low_s: Positive
    low_rate: NotNegative = 0.0
    random: bool = False
    """Whether the lengths are means of exponential distributions."""


class StreamPart(Part):
    """A stream and the arrivals of its tuples."""

    rate: NotNegative | None = None
    """Tuples per second; not needed for `recorded` arrivals."""
    arrivals: ArrivalKind = ArrivalKind.POISSON
    tuples: Annotated[int, Field(gt=0)] | None = None
    """Number of tuples after which the stream ends; without it, the workload needs `seconds`."""
    burst: BurstPart | None = None
    offsets_s: tuple[NotNegative, ...] = ()
    """Arrival times in seconds, for `recorded` arrivals."""
    begin_s: NotNegative = 0.0
    size: Positive = 64.0
    """Bytes of a tuple."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.arrivals is ArrivalKind.RECORDED:
            if list(self.offsets_s) != sorted(self.offsets_s) or not self.offsets_s:
                raise ValueError("recorded arrivals need offsets_s, in ascending order")
        elif self.rate is None:
            raise ValueError(f"{self.arrivals.value} arrivals need a rate")
        if (self.arrivals is ArrivalKind.BURSTY) != (self.burst is not None):
            raise ValueError("burst is required for bursty arrivals and not allowed for others")
        if self.burst is not None and not (self.rate or self.burst.low_rate):
            raise ValueError("one of the rates of a burst must be greater than 0")
        return self


class OverheadPart(Part):
    """Overheads in addition to the work on tuples."""

    setup_us: NotNegative = 0.0
    """Per call of an operator that has no `setup_us` of its own."""
    context_switch_us: NotNegative = 0.0
    switch: SwitchPoint = SwitchPoint.OPERATORS
    empty_visit_us: NotNegative = 0.0
    """Per visit of an operator or source that has nothing to do."""
    ring_visits: bool = False
    """Whether round robin pays `empty_visit_us` for all operators that it skips."""
    decision_us: NotNegative = 0.0
    """Per slice, for the decision of the policy."""
    transition_us: NotNegative = 0.0
    """Per transition between scheduler and operators (PRB paper, 5.6)."""
    accounting: Accounting = Accounting.CONSUMED
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.0


class SourcesPart(Part):
    """Source operators."""

    service: Service = Service.POLICY
    cost_us: NotNegative = 0.0
    setup_us: NotNegative | None = None
    """Set-up cost per call; by default that of other operators."""
    train: Annotated[int, Field(gt=0)] = 4096
    cores: Annotated[int, Field(ge=0, le=16)] = 0
    order: SourceOrder = SourceOrder.ROUND_ROBIN


class Utilisation(Part):
    """Target utilisation: work on tuples over all paths, divided by the time of all cores."""

    of: Share
    by: Literal["costs", "rates"] = "costs"
    """What is scaled: the costs per tuple, or the rates of the streams."""
    at: float | None = None
    """Reference rate that is assumed for all streams, for workloads whose rates change over time."""


class ChangePart(Part):
    """A change at a point in time. Names may contain the wildcard `*`."""

    at: NotNegative
    """Time of the change in seconds."""
    class_: str = Field("*", alias="class")
    """The class whose priority or operators change."""
    priority: Annotated[int, Field(gt=0)] | None = None
    stream: str | None = None
    rate: NotNegative | None = None
    """New rate of the streams that match `stream`, in tuples per second."""
    operator: str | None = None
    """Kind or name of the operators that change."""
    query: str = "*"
    selectivity: NotNegative | None = None
    """New selectivity of these operators."""
    cost_us: NotNegative | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.stream is None) != (self.rate is None):
            raise ValueError("a change of rates needs both stream and rate")
        changed = self.selectivity is not None or self.cost_us is not None
        if changed != (self.operator is not None):
            raise ValueError("a change of operators needs operator, and selectivity or cost_us")
        if self.priority is None and self.rate is None and not changed:
            raise ValueError("a change needs a priority, a rate, a selectivity or a cost")
        return self


class Workload(Part):
    """A workload file."""

    name: str
    about: str = ""
    fitted: tuple[str, ...] = ()
    """Assumptions that are not in the paper and were fitted to its published results."""
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    seed: int = 0
    """Seed of the values that are drawn when the file is expanded; a run has its own."""
    cores: Annotated[int, Field(gt=0, le=64)] = 1
    seconds: Positive | None = None
    utilisation: Utilisation | None = None
    response_from: ResponseFrom = ResponseFrom.ARRIVAL
    statistics: StatisticsKind = StatisticsKind.MEASURED
    exact_quantum: bool = False
    """Whether the end of a slice interrupts a tuple."""
    sample_s: Positive = 0.1
    sources: SourcesPart = SourcesPart()
    overheads: OverheadPart = OverheadPart()
    classes: Annotated[dict[str, ClassPart], Field(min_length=1)]
    streams: dict[str, StreamPart]
    """Streams by name or pattern with `*`. A name takes precedence over a pattern, a longer pattern over a
    shorter one."""
    operators: dict[str, Costs] = Field(default_factory=dict)
    """Default costs by kind of operator."""
    shapes: dict[str, dict[str, OperatorPart]] = Field(default_factory=dict)
    queries: Annotated[tuple[QueryPart, ...], Field(min_length=1)]
    only: tuple[str, ...] = ()
    """Classes whose queries run, by default all; the others only count for the utilisation."""
    changes: tuple[ChangePart, ...] = ()
    policies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Options of policies in the paper, by policy name; options of a run take precedence."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if isinstance(data.get("utilisation"), int | float):
            data = {**data, "utilisation": {"of": data["utilisation"]}}
        if isinstance(data.get("parameters"), dict):
            parameters = {
                name: {"default": part} if isinstance(part, int | float | str) else part
                for name, part in data["parameters"].items()
            }
            data = {**data, "parameters": parameters}
        return data
