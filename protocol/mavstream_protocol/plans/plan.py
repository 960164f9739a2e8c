"""The plan object: a continuous query as an immutable graph of operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from mavstream_protocol.errors import InvalidPlan, ProblemItem
from mavstream_protocol.explained import refusal
from mavstream_protocol.model_errors import causes, sentence
from mavstream_protocol.names import Name
from mavstream_protocol.plans.hints import Hints
from mavstream_protocol.plans.windows import AggregateWindow, NonNegativeSpan, Window

_CONFIG = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
Input = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}(\.[A-Za-z_][A-Za-z0-9_]{0,63})?$")
]
"""The name of a node, or `node.output` for an output of a split."""
Computation = Annotated[dict[Name, str], Field(min_length=1, max_length=256)]
"""New column to expression, in order."""

ELSE = "else"
"""The output of a split for rows that match none of its predicates."""


class PlanNode(BaseModel):
    """Base class of the nodes of a plan, as clients write them.

    The names of its fields determine which other nodes it reads.
    """

    model_config = _CONFIG
    input_fields: ClassVar[tuple[str, ...]]
    """The fields that name inputs, each a node or a list of nodes."""
    table_fields: ClassVar[frozenset[str]] = frozenset()
    """The input fields that may name a stored table."""
    gives_rows: ClassVar[bool] = True
    """Whether rows flow out of it."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        if not hasattr(cls, "input_fields"):
            raise TypeError(f"{cls.__name__} must name in `input_fields` the fields that say what it reads")

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """The outputs that a reader must choose from; None if there is only one."""
        return None

    @property
    def source_stream(self) -> str | None:
        """The stream whose rows enter the plan here; None if it reads anything else."""
        return None

    @property
    def source_query(self) -> str | None:
        """The query whose results enter the plan here; None if it reads anything else."""
        return None

    def reads(self) -> dict[str, str]:
        """Return the inputs of the node, keyed by their pointers within the node."""
        found: dict[str, str] = {}
        for field in self.input_fields:
            value = getattr(self, field)
            if isinstance(value, str):
                found[field] = value
            else:
                found |= {f"{field}/{index}": text for index, text in enumerate(value)}
        return found

    def reading(self, changes: Mapping[str, str]) -> Self:
        """Return a copy of the node with its inputs replaced; `changes` maps old inputs to new ones."""
        if not any(text in changes for text in self.reads().values()):
            return self
        update: dict[str, object] = {}
        for field in self.input_fields:
            value = getattr(self, field)
            one = isinstance(value, str)
            update[field] = changes.get(value, value) if one else tuple(changes.get(t, t) for t in value)
        return self.model_copy(update=update)


class SourceNode(PlanNode):
    """The rows of a stream, or the results of another query: exactly one of `stream` and `query`."""

    input_fields = ()
    op: Literal["source"]
    stream: Name | None = None
    """The name of a stream."""
    query: Name | None = None
    """The name of a query: its results are read as the rows of a stream are."""
    hints: Hints | None = None

    @property
    def origin(self) -> str:
        """The name of the stream or query."""
        return self.stream or self.query or ""

    @property
    def source_stream(self) -> str | None:
        """The stream whose rows enter the plan here."""
        return self.stream

    @property
    def source_query(self) -> str | None:
        """The query whose results enter the plan here."""
        return self.query

    @model_validator(mode="after")
    def _reads_one(self) -> Self:
        if (self.stream is None) == (self.query is None):
            got = "both" if self.stream else "neither"
            raise refusal(
                "missing_key", f"a source reads a `stream` or a `query`, got {got}: name exactly one"
            )
        return self

    @field_validator("hints")
    @classmethod
    def _hands_on_all(cls, hints: Hints | None) -> Hints | None:
        if hints is not None and hints.selectivity is not None:
            raise refusal("selectivity", "a source hands on every row: leave `selectivity` out")
        return hints


class TableNode(PlanNode):
    """A stored table, for the right side of a join."""

    input_fields = ()
    gives_rows = False
    op: Literal["table"]
    table: Name


class SelectNode(PlanNode):
    """Passes rows for which a predicate is true."""

    input_fields = ("input",)
    op: Literal["select"]
    input: Input
    where: str
    hints: Hints | None = None


class ProjectNode(PlanNode):
    """One row per row, with computed columns."""

    input_fields = ("input",)
    op: Literal["project"]
    input: Input
    compute: Computation
    hints: Hints | None = None


class SplitNode(PlanNode):
    """Routes each row to the first output whose predicate is true, otherwise to `else`."""

    input_fields = ("input",)
    op: Literal["split"]
    input: Input
    outputs: Annotated[dict[Name, str], Field(min_length=1, max_length=64)]
    hints: Hints | None = None

    @property
    def output_names(self) -> tuple[str, ...]:
        """Its outputs in order, and the one for the rest."""
        return (*self.outputs, ELSE)


class UnionNode(PlanNode):
    """Merges the rows of all inputs, which must have the same columns."""

    input_fields = ("inputs",)
    op: Literal["union"]
    inputs: Annotated[tuple[Input, ...], Field(min_length=2, max_length=64)]
    order: Literal["time"] | None = None
    """`time` merges by time, input and position, up to the joint watermark."""
    hints: Hints | None = None


class ExceptNode(PlanNode):
    """Emits, at a window's close, the left rows without an equal right row."""

    input_fields = ("left", "right")
    op: Literal["except"]
    left: Input
    right: Input
    window: Window
    hints: Hints | None = None


class DistinctNode(PlanNode):
    """At a window's close: each row that is different from those before it, once."""

    input_fields = ("input",)
    op: Literal["distinct"]
    input: Input
    window: Window
    hints: Hints | None = None


class AggregateNode(PlanNode):
    """At a window's close: one row per group with aggregates over its rows."""

    input_fields = ("input",)
    op: Literal["aggregate"]
    input: Input
    by: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    window: AggregateWindow
    compute: Computation
    scaled: bool = False
    """Whether counts, sums and averages include an estimate for shed rows, each with its `<name>_error`."""
    hints: Hints | None = None


class Within(BaseModel):
    """Maximum distance between the times of the right row and the left row."""

    model_config = _CONFIG
    before: NonNegativeSpan
    """The right row is at most this much earlier."""
    after: NonNegativeSpan
    """The right row is at most this much later."""


class JoinNode(PlanNode):
    """Pairs of rows with equal keys that are near in time or in the same window; or rows of a stored table.

    Where `right` is a table, each row joins the version of it that was current when the row arrived.
    """

    input_fields = ("left", "right")
    table_fields = frozenset({"right"})
    op: Literal["join"]
    left: Input
    right: Input
    on: Annotated[tuple[tuple[Name, Name], ...], Field(max_length=16)] = ()
    within: Within | None = None
    window: Window | None = None
    where: str | None = None
    """An additional condition over `l.column` and `r.column`."""
    compute: Computation | None = None
    """The columns of the result; without it, all columns of both sides."""
    order: Literal["time"] | None = None
    how: Literal["inner", "left"] = "inner"
    """With a table only: `left` also emits rows without a match, with nulls for the table's columns."""
    hints: Hints | None = None

    @model_validator(mode="before")
    @classmethod
    def _same_distance_both_ways(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and isinstance(data.get("within"), str):
            return {**data, "within": {"before": data["within"], "after": data["within"]}}
        return data


Node = Annotated[
    SourceNode
    | TableNode
    | SelectNode
    | ProjectNode
    | SplitNode
    | UnionNode
    | ExceptNode
    | DistinctNode
    | AggregateNode
    | JoinNode,
    Field(discriminator="op"),
]
NODES: tuple[type[PlanNode], ...] = get_args(get_args(Node)[0])
"""The node of each operator."""
OPERATORS: tuple[str, ...] = tuple(get_args(node.model_fields["op"].annotation)[0] for node in NODES)
"""The names of all operators."""


class InputRef(NamedTuple):
    """A reference to an input: a node and, for a split, one of its outputs."""

    node: str
    output: str | None

    @classmethod
    def parse(cls, text: str) -> InputRef:
        """Read `node` or `node.output`."""
        node, _, output = text.partition(".")
        return cls(node, output or None)


class Plan(BaseModel):
    """A query plan: nodes by name, one root, every node used."""

    model_config = _CONFIG

    version: Literal[1] = 1
    root: Input
    nodes: Annotated[dict[Name, Node], Field(min_length=1, max_length=256)]

    @classmethod
    def parse(cls, data: Any) -> Plan:
        """Build a plan from its JSON form; raises InvalidPlan with a pointer to each error."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise InvalidPlan([_item(details) for details in causes(error.errors())[:_MAX_ITEMS]]) from None

    @property
    def streams(self) -> frozenset[str]:
        """The streams that the plan reads."""
        return frozenset(node.source_stream for node in self.nodes.values() if node.source_stream is not None)

    @property
    def queries(self) -> frozenset[str]:
        """The queries whose results the plan reads."""
        return frozenset(node.source_query for node in self.nodes.values() if node.source_query is not None)

    def inputs(self, name: str) -> dict[str, InputRef]:
        """Return where a node reads, keyed by the pointer of the input inside the node."""
        return {field: InputRef.parse(text) for field, text in self.nodes[name].reads().items()}


_MAX_ITEMS = 100
_TAGS = frozenset(OPERATORS) | {"time", "rows", "session"}


def _item(details: Any) -> ProblemItem:
    """Convert an error of pydantic; the union tags in its location are not part of the object's path."""
    location = [str(part) for part in details["loc"]]
    path = [
        part
        for index, part in enumerate(location)
        if not (part in _TAGS and index >= 2 and location[0] == "nodes" and _is_tag(location, index))
    ]
    kind, pointer = details["type"], "/".join(path) or "plan"
    got = repr(details.get("input"))
    got = got if len(got) <= 80 else got[:77] + "..."
    if kind == "union_tag_invalid":
        return ProblemItem(
            pointer=f"{pointer}/op",
            code="unknown_operator",
            detail=f"unknown operator {details['ctx']['tag']!r}; known are: {', '.join(OPERATORS)}",
        )
    if kind == "union_tag_not_found":
        return ProblemItem(
            pointer=pointer,
            code="missing_operator",
            detail=f"the node has no `op`; expected one of: {', '.join(OPERATORS)}",
        )
    if kind == "extra_forbidden":
        return ProblemItem(
            pointer=pointer, code="unknown_key", detail=f"{path[-1]!r} is not known here; leave it out"
        )
    if kind == "missing":
        return ProblemItem(pointer=pointer, code="missing_key", detail=f"{path[-1]!r} is required")
    if kind == "missing_key":
        return ProblemItem(pointer=pointer, code=kind, detail=details["msg"])
    if kind == "string_pattern_mismatch":
        return ProblemItem(
            pointer=pointer,
            code="invalid_name",
            detail=f"expected a name of letters, digits and underscores, at most 64, got {got}",
        )
    code = "invalid_window" if "window" in path else "invalid_value"
    text = sentence(details, f"'{path[-1] if path else 'plan'}'")
    if "reason" in details.get("ctx", {}):
        text += f" (got {got})"
    return ProblemItem(pointer=pointer, code=code, detail=text)


def _is_tag(location: list[str], index: int) -> bool:
    """Pydantic adds the operator after a node's name and the axis after `window`."""
    return index == 2 or location[index - 1] == "window"
