"""Inference scope: the schemas known so far and the errors of the current node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from mavstream_protocol.errors import ExpressionError, InvalidPlan, ProblemItem
from mavstream_protocol.expressions.parser import ExpressionParser
from mavstream_protocol.expressions.syntax_tree import Tree
from mavstream_protocol.expressions.typed import AggregateExpression, Expression
from mavstream_protocol.plans.budget import MAX_PROBLEMS, PlanBudget
from mavstream_protocol.plans.graph import unknown
from mavstream_protocol.plans.plan import InputRef
from mavstream_protocol.plans.windows import AggregateWindow, RowWindow
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.typed_plan import StreamShape, TypedNode


class Scope:
    """State of an inference pass over a plan, bottom-up, with the errors of the current node."""

    def __init__(self, streams: Mapping[str, StreamShape], tables: Mapping[str, Schema]) -> None:
        self.streams = streams
        self.tables = tables
        self.typed: dict[str, TypedNode] = {}
        # By node: whether its rows have a defined order that does not depend on the policy.
        self.ordered: dict[str, bool] = {}
        self.problems: list[ProblemItem] = []
        self.budget = PlanBudget()
        # By node: the streams whose rows reach it.
        self.fed_by: dict[str, frozenset[str]] = {}
        # By node that hands rows on: a stream of which it may give a row twice, or None.
        self.repeated: dict[str, str | None] = {}
        self._trees: dict[str, Tree] = {}
        # By identity of the schema: nodes that hand on columns share it with their input.
        self._parsers: dict[int, ExpressionParser] = {}
        self._types_by_name: dict[int, Mapping[str, FieldType]] = {}
        self.name = ""
        self.inputs: tuple[InputRef, ...] = ()
        self.failed = False

    def enter(self, name: str, inputs: tuple[InputRef, ...]) -> None:
        """Set the current node; its inputs were inferred without errors."""
        self.name, self.inputs, self.failed = name, inputs, False

    def fail(self, field: str, code: str, detail: str) -> None:
        """Record an error at a field of the current node."""
        pointer = f"nodes/{self.name}/{field}" if field else f"nodes/{self.name}"
        self.problems.append(ProblemItem(pointer=pointer, code=code, detail=detail))
        self.failed = True
        if len(self.problems) >= MAX_PROBLEMS:
            raise InvalidPlan(self.problems)

    def add(self, typed: TypedNode) -> None:
        """Record the typed form of the current node; raises InvalidPlan if the plan becomes too large."""
        if typed.name not in self.fed_by:  # the rule of a source sets it
            below = [self.fed_by[reference.node] for reference in typed.inputs]
            self.fed_by[typed.name] = below[0] if len(below) == 1 else frozenset[str]().union(*below)
        if typed.inputs and all(
            typed.schema is not self.typed[reference.node].schema for reference in typed.inputs
        ):
            self.budget.spend_columns(len(typed.schema))
        self.ordered[typed.name] = typed.gives_order([self.ordered[one.node] for one in typed.inputs])
        self.typed[typed.name] = typed

    def schema(self, index: int = 0) -> Schema:
        """Return the columns of an input."""
        return self.typed[self.inputs[index].node].schema

    def columns(self, index: int = 0, prefix: str = "") -> dict[str, Field]:
        """Return the columns of an input, by the names that expressions use."""
        return {prefix + field.name: field for field in self.schema(index)}

    def parser(self, columns: Mapping[str, Field] | None = None) -> ExpressionParser:
        """Return a parser of expressions over these columns; by default those of the only input."""
        if columns is not None:
            return ExpressionParser(columns, self._trees, self.budget.spend_parts)
        key = id(self.schema())
        if key not in self._parsers:
            self._parsers[key] = self.parser(self.columns())
        return self._parsers[key]

    def scalar(self, field: str, text: str, parser: ExpressionParser) -> Expression | None:
        """Return the typed expression, or None after recording its error."""
        try:
            return parser.scalar(text)
        except ExpressionError as error:
            self.fail(field, error.code, error.detail)
            return None

    def predicate(self, field: str, text: str, parser: ExpressionParser) -> Expression | None:
        """Return the typed condition, or None after recording its error."""
        try:
            return parser.predicate(text)
        except ExpressionError as error:
            self.fail(field, error.code, error.detail)
            return None

    def aggregate(self, field: str, text: str, by: Collection[str]) -> AggregateExpression | None:
        """Return the typed output of an aggregate over the only input, or None after recording its error."""
        try:
            return self.parser().aggregate(text, by)
        except ExpressionError as error:
            self.fail(field, error.code, error.detail)
            return None

    def need_order(self, field: str, what: str, index: int = 0) -> None:
        """Reject an order-sensitive operator whose input has no defined order."""
        name = self.inputs[index].node
        if not self.ordered[name]:
            self.fail(
                field,
                "order_required",
                f"{what} depends on the order of the rows, and node {name!r} gives them in none; "
                'write `"order": "time"` at the union or join below',
            )

    def window_columns(self, window: AggregateWindow, others: Iterable[str]) -> tuple[Field, Field]:
        """Return the two columns that a windowed operator adds."""
        for name in others:
            if name in ("window_start", "window_end"):
                self.fail(
                    "",
                    "duplicate_column",
                    f"the operator adds a column {name!r} and there is one already; "
                    "rename the one below with a project",
                )
        type_ = FieldType.INT if isinstance(window, RowWindow) else FieldType.TIMESTAMP
        return Field("window_start", type_), Field("window_end", type_)

    def same_columns(self, field: str, index: int) -> None:
        """Reject a set operation whose inputs have different columns."""
        first, other = self._types(self.schema(0)), self._types(self.schema(index))
        if first != other:
            self.fail(
                field,
                "schema_mismatch",
                f"both inputs must have the same columns; {self.inputs[0].node!r} has {_shape(first)}, "
                f"{self.inputs[index].node!r} has {_shape(other)}{_difference(first, other)}; "
                "make them equal with a project",
            )

    def _types(self, schema: Schema) -> Mapping[str, FieldType]:
        key = id(schema)
        if key not in self._types_by_name:
            self._types_by_name[key] = {field.name: field.type for field in schema}
        return self._types_by_name[key]

    def check_key(self, pointer: str, left: str, right: str) -> None:
        """Refuse a pair of keys that the two inputs do not have, or that cannot be equal."""
        fields = []
        for index, name in enumerate((left, right)):
            field = self.schema(index).get(name)
            if field is None:
                known = list(self.schema(index).names)
                side = self.inputs[index].node
                self.fail(f"{pointer}/{index}", "unknown_field", unknown(f"field of {side!r}", name, known))
            else:
                fields.append(field)
        if len(fields) == 2 and fields[0].type is not fields[1].type:
            self.fail(
                pointer,
                "type_mismatch",
                f"keys must have the same type; left {left!r} is {fields[0].type}, "
                f"right {right!r} is {fields[1].type}; cast one in a project below",
            )


def _difference(first: Mapping[str, FieldType], other: Mapping[str, FieldType]) -> str:
    """Name the first column that has different types."""
    found = [name for name in first if name in other and first[name] is not other[name]]
    return f": {found[0]!r} is {first[found[0]]} and {other[found[0]]}" if found else ""


def _shape(columns: Mapping[str, FieldType]) -> str:
    return "(" + ", ".join(f"{name} {type_}" for name, type_ in columns.items()) + ")"


def field_of(name: str, expression: Expression) -> Field:
    """Return the field of the column that an expression computes."""
    return Field(name, expression.type, expression.nullable)
