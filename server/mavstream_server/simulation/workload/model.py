"""Workload files: what may stand in one, and what it means. Times are microseconds where a name says so.

A file is read in three steps: arithmetic with its parameters is worked out, this model checks what is there,
and `expansion` writes out families of queries one by one.
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
    """A number that a run may set; other values can be worked out from it."""

    default: float | str
    """Also arithmetic with other parameters."""
    least: float | None = None
    most: float | None = None


class ClassPart(Part):
    """A class of queries."""

    priority: Annotated[int, Field(gt=0)]


class BurstPart(Part):
    """High and low rates by turns, for arrivals that are `bursty`; the stream's rate is the high one."""

    high_s: Positive
    low_s: Positive
    low_rate: NotNegative = 0.0
    random: bool = False
    """Whether the lengths are means of exponential ones."""


class StreamPart(Part):
    """How tuples arrive on a stream."""

    rate: NotNegative | None = None
    """Tuples per second; not needed if they are recorded."""
    arrivals: ArrivalKind = ArrivalKind.POISSON
    tuples: Annotated[int, Field(gt=0)] | None = None
    """The stream ends with so many; without, the workload needs `seconds`."""
    burst: BurstPart | None = None
    offsets_s: tuple[NotNegative, ...] = ()
    """When the tuples come, for arrivals that are `recorded`."""
    begin_s: NotNegative = 0.0
    size: Positive = 64.0
    """Bytes of a tuple."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.arrivals is ArrivalKind.RECORDED:
            if list(self.offsets_s) != sorted(self.offsets_s) or not self.offsets_s:
                raise ValueError("recorded arrivals need offsets_s, in order")
        elif self.rate is None:
            raise ValueError(f"{self.arrivals.value} arrivals need a rate")
        if (self.arrivals is ArrivalKind.BURSTY) != (self.burst is not None):
            raise ValueError("bursty arrivals need burst, and only they do")
        if self.burst is not None and not (self.rate or self.burst.low_rate):
            raise ValueError("one of the rates of a burst must be more than 0")
        return self


class OverheadPart(Part):
    """What is paid besides the work on tuples."""

    setup_us: NotNegative = 0.0
    """Per call of an operator, where it has no own."""
    context_switch_us: NotNegative = 0.0
    switch: SwitchPoint = SwitchPoint.OPERATORS
    empty_visit_us: NotNegative = 0.0
    """For looking at an operator or source that has nothing to do."""
    ring_visits: bool = False
    """Whether round robin pays that for all operators that it passes over on its way around."""
    decision_us: NotNegative = 0.0
    """For every slice: asking the policy."""
    transition_us: NotNegative = 0.0
    """For every transition between scheduler and operators (PRB paper, 5.6)."""
    accounting: Accounting = Accounting.CONSUMED
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.0


class SourcesPart(Part):
    """Source operators."""

    service: Service = Service.POLICY
    cost_us: NotNegative = 0.0
    setup_us: NotNegative | None = None
    """Without, as of other operators."""
    train: Annotated[int, Field(gt=0)] = 4096
    cores: Annotated[int, Field(ge=0, le=16)] = 0
    order: SourceOrder = SourceOrder.ROUND_ROBIN


class Utilisation(Part):
    """The load that the workload is to have: per-tuple work over all paths, divided by the cores."""

    of: Share
    by: Literal["costs", "rates"] = "costs"
    """What is scaled: what a tuple costs, or how many come."""
    at: float | None = None
    """Parameter-free reference: work it out as if all streams had this rate (a ramp has none of its own)."""


class ChangePart(Part):
    """From `at` on, something is different. Names may hold `*`."""

    at: NotNegative
    """Seconds."""
    class_: str = Field("*", alias="class")
    """Whose priority, or whose operators."""
    priority: Annotated[int, Field(gt=0)] | None = None
    stream: str | None = None
    rate: NotNegative | None = None
    """Of these streams."""
    operator: str | None = None
    """A kind, or a name."""
    query: str = "*"
    selectivity: NotNegative | None = None
    """Of these operators."""
    cost_us: NotNegative | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.stream is None) != (self.rate is None):
            raise ValueError("a change of rates needs stream and rate")
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
    """What is not in the paper, and was chosen so that its figures come out."""
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    seed: int = 0
    """For what is drawn when the file is read; a run has its own."""
    cores: Annotated[int, Field(gt=0, le=64)] = 1
    seconds: Positive | None = None
    utilisation: Utilisation | None = None
    response_from: ResponseFrom = ResponseFrom.ARRIVAL
    statistics: StatisticsKind = StatisticsKind.MEASURED
    exact_quantum: bool = False
    """Whether a slice's duration cuts a tuple in two."""
    sample_s: Positive = 0.1
    sources: SourcesPart = SourcesPart()
    overheads: OverheadPart = OverheadPart()
    classes: Annotated[dict[str, ClassPart], Field(min_length=1)]
    streams: dict[str, StreamPart]
    """By name; `*` stands for anything. A name counts more than a pattern, a long one more than a short."""
    operators: dict[str, Costs] = Field(default_factory=dict)
    """By kind."""
    shapes: dict[str, dict[str, OperatorPart]] = Field(default_factory=dict)
    queries: Annotated[tuple[QueryPart, ...], Field(min_length=1)]
    only: tuple[str, ...] = ()
    """Classes whose queries run, if not all: the others count for the utilisation and are then left out."""
    changes: tuple[ChangePart, ...] = ()
    policies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Options that the paper runs a policy with, by its name; what a run asks for counts more."""

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
