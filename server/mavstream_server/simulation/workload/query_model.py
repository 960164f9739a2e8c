"""Queries in workload files: operators, shapes, trees and families."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mavstream_server.simulation.scenario import CostKind
from mavstream_server.simulation.workload.draws import Value

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Part(BaseModel):
    """Base of all parts of a file: frozen, and what is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Costs(Part):
    """What an operator costs and gives; what is left out is taken from `operators`, then from defaults."""

    cost_us: Value | None = None
    """Per tuple,"""
    per_output_us: Value | None = None
    """per tuple that comes out,"""
    setup_us: NotNegative | None = None
    """and per call."""
    selectivity: Value | None = None
    """Tuples out per tuple in; of a join, per tuple of either side."""
    selection: Literal["random", "constant"] | None = None
    """Whether tuples pass by chance, or so that fractions add up."""
    varies: CostKind | None = None
    size: Positive | None = None
    """Bytes of a tuple that comes out; without, as of one that goes in."""
    synchronised: bool | None = None
    """A join whose sides wait until the other stream has come as far in time."""
    window_us: NotNegative | None = None
    """A join's partners are at most so far apart; 0 says that no time lies between them."""


class OperatorPart(Costs):
    """An operator of a query."""

    kind: str
    """`select`, `project`, `join`, `aggregate`, `union`, ..., or `output` for the last one."""
    inputs: tuple[str, ...] = ()
    """Operators of the query, or streams."""
    input: str | None = None
    """The same for a single one."""

    @model_validator(mode="after")
    def _reads(self) -> Self:
        if bool(self.inputs) == (self.input is not None):
            raise ValueError("an operator needs either input or inputs")
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """What it reads."""
        return self.inputs if self.input is None else (self.input,)


class Expensive(Part):
    """Operators of a tree that cost more than the others (PRB paper, 5.3 to 5.5)."""

    cost_us: Positive
    depth: Annotated[int, Field(ge=0)]
    """0 is the root."""
    count: Annotated[int, Field(gt=0)] = 1
    """How many, from the left."""


class TreePart(Part):
    """A query tree (PRB paper, 4): the root is the output, every leaf reads a stream of its own."""

    depth: Annotated[int, Field(gt=0, le=12)]
    fan_out: Annotated[int, Field(gt=0, le=200)]
    cost_us: Value
    selectivity: Value = 1.0
    root_cost_us: NotNegative = 1.0
    expensive: Expensive | None = None


class QueryPart(Part):
    """A query, or a family of queries that differ in what is drawn for them."""

    id: str | None = None
    """Without, made of the class and the shape."""
    class_: str = Field(alias="class")
    shape: str | None = None
    """One of `shapes`,"""
    operators: dict[str, OperatorPart] | None = None
    """or operators of its own, bottom-up; an output is put on top unless there is one,"""
    tree: TreePart | None = None
    """or a tree."""
    count: Annotated[int, Field(ge=0)] = 1
    """How many different ones."""
    replicas: Annotated[int, Field(gt=0)] = 1
    """How many of each; they read the same streams."""
    streams: Annotated[int, Field(gt=0)] | None = None
    """How many streams, or sets of streams, they share; without, each has its own."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if sum(form is not None for form in (self.shape, self.operators, self.tree)) != 1:
            raise ValueError("a query needs one of shape, operators and tree")
        return self
