"""Model of queries in workload files: operators, shapes, trees and families."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from mavstream_protocol.described import Described
from mavstream_server.simulation.scenario import CostKind
from mavstream_server.simulation.workload.draws import Value

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Part(Described):
    """Base of all parts of a file: frozen, and unknown fields are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Costs(Part):
    """Costs and selectivity of an operator; missing values are taken from `operators`, then from defaults."""

    cost_us: Value | None = None
    """Cost per input tuple."""
    per_output_us: Value | None = None
    """Cost per output tuple."""
    setup_us: NotNegative | None = None
    """Cost per call."""
    selectivity: Value | None = None
    """Output tuples per input tuple; for a join, per tuple of either side."""
    selection: Literal["random", "constant"] | None = None
    """Whether tuples pass at random, or at regular intervals so that fractions add up."""
    varies: CostKind | None = None
    size: Positive | None = None
    """Bytes of an output tuple; by default as of an input tuple."""
    synchronised: bool | None = None
    """For a join: whether a side waits until the other side has reached the same time."""
    window_us: NotNegative | None = None
    """For a join: largest time between partners; 0 if partners arrive at the same time."""


class OperatorPart(Costs):
    """An operator of a query."""

    kind: str
    """`select`, `project`, `join`, `aggregate`, `union`, ..., or `output` for the last operator.

    `results` reads the answers of another query, and nothing else does.
    """
    inputs: tuple[str, ...] = ()
    """Operators of the query, streams, or `query:ID`, the answers of a query before it."""
    input: str | None = None
    """A single input, instead of `inputs`."""

    @model_validator(mode="after")
    def _reads(self) -> Self:
        if bool(self.inputs) == (self.input is not None):
            raise ValueError("an operator needs either input or inputs")
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """The operators or streams that it reads."""
        return self.inputs if self.input is None else (self.input,)


class Expensive(Part):
    """Operators of a tree with a higher cost than the others (PRB paper, 5.3 to 5.5)."""

    cost_us: Positive
    depth: Annotated[int, Field(ge=0)]
    """Level in the tree; 0 is the root."""
    count: Annotated[int, Field(gt=0)] = 1
    """Number of operators, from the left."""


class TreePart(Part):
    """A query tree (PRB paper, 4): the root is the output, every leaf reads a stream of its own."""

    depth: Annotated[int, Field(gt=0, le=12)]
    fan_out: Annotated[int, Field(gt=0, le=200)]
    cost_us: Value
    selectivity: Value = 1.0
    root_cost_us: NotNegative = 1.0
    expensive: Expensive | None = None


class QueryPart(Part):
    """A query, or a family of queries that differ in their drawn values."""

    id: str | None = None
    """By default made of the class and the shape."""
    class_: str = Field(alias="class")
    latency_us: Positive | None = None
    """Latency target; by default that of its class, if any."""
    shape: str | None = None
    """Name of one of the `shapes` of the workload."""
    operators: dict[str, OperatorPart] | None = None
    """Operators of its own instead of a shape, bottom-up; an output is added at the top if missing."""
    tree: TreePart | None = None
    """A generated tree instead of a shape or operators."""
    count: Annotated[int, Field(ge=0)] = 1
    """Number of different members of the family."""
    replicas: Annotated[int, Field(gt=0)] = 1
    """Number of copies of each member, which read the same streams."""
    streams: Annotated[int, Field(gt=0)] | None = None
    """Number of streams, or sets of streams, that the members share; by default each has its own."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if sum(form is not None for form in (self.shape, self.operators, self.tree)) != 1:
            raise ValueError("a query needs exactly one of shape, operators and tree")
        return self
