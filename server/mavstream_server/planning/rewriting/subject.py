"""The subject of a rewrite: a plan with its types, the readers of its nodes, and its query's options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.plans.graph import bottom_up, readers
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import InputRef, Plan
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import Field, Schema
from mavstream_protocol.typed_plan import StreamShape, TypedNode, TypedPlan
from mavstream_server.planning.rewriting.expressions import can_fail


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What rules depend on besides the plan: schemas and the options of the query."""

    streams: Mapping[str, StreamShape]
    tables: Mapping[str, Schema] = field(default_factory=dict)
    on_error: OnError = OnError.NULL
    one_time: bool = False
    """Whether the query ends with the first window that closes."""

    def types(self, plan: Plan) -> TypedPlan:
        """Return the plan with its types; raises InvalidPlan."""
        return infer(plan, self.streams, self.tables)


@dataclass(frozen=True)
class Subject:
    """A plan to be rewritten. Rules read it and build new plans; they do not change it."""

    plan: Plan
    typed: TypedPlan
    surroundings: Surroundings
    rank: Callable[[str], float] = lambda _name: 0.0
    """Returns the rank of a select by its name: in consecutive selects, low ranks should come first."""

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The names of the nodes, bottom-up, which is the order in which rules consider them."""
        return bottom_up(self.plan)

    @cached_property
    def _readers(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for reference, names in readers(self.plan).items():
            found.setdefault(reference.node, []).extend(names)
        return found

    def readers(self, name: str) -> list[str]:
        """Return the nodes that read a node, once for each input that reads it."""
        return self._readers.get(name, [])

    def only_reader(self, name: str) -> str | None:
        """Return the only reader of a node; None if there are several or the node is the root.

        Nothing is moved past a node with other readers, as they would see the change.
        """
        names = self.readers(name)
        return names[0] if len(names) == 1 and InputRef.parse(self.plan.root).node != name else None

    def below(self, name: str, field_: str = "input") -> str:
        """Return the node that a field of a node names."""
        return InputRef.parse(getattr(self.plan.nodes[name], field_)).node

    def columns(self, name: str) -> dict[str, Field]:
        """Return the columns that expressions of a node can read, by the names that they use.

        The columns of the table in a left join are nullable, as they are for the columns that it computes.
        """
        typed, below = self.typed_node(name), self.plan.nodes[name].reads().values()
        outer = typed.lookup is not None and typed.lookup.outer
        found: dict[str, Field] = {}
        for port, (side, reference) in enumerate(zip(typed.sides, below, strict=True)):
            for column in self.schema(reference):
                nullable = column.nullable or (outer and port > 0)
                found[side + column.name] = replace(column, nullable=nullable)
        return found

    def schema(self, reference: str) -> Schema:
        """Return the columns of an input."""
        return self.typed.nodes[InputRef.parse(reference).node].schema

    def typed_node(self, name: str) -> TypedNode:
        """Return the typed form of a node."""
        return self.typed.nodes[name]

    def may_move(self, expressions: Iterable[Expression]) -> bool:
        """Whether expressions may be evaluated for more or fewer rows than now.

        With `on_error: fail` this is not allowed for expressions that can fail: the rows that they are
        evaluated for decide whether the query fails. Otherwise a row whose predicate fails is dropped at any
        position in the plan; only the count of errors depends on the position.
        """
        return self.surroundings.on_error is not OnError.FAIL or not any(map(can_fail, expressions))

    @cached_property
    def may_drop_columns(self) -> bool:
        """Whether computed columns may be removed.

        The engine computes a column only if it is read. Where failures skip rows or fail the query, a column
        that can fail must still be read, even if only by a column that is not used itself.
        """
        if self.surroundings.on_error is OnError.NULL:
            return True
        return not any(can_fail(e) for node in self.typed.nodes.values() for e in node.computed())

    def is_table(self, reference: str) -> bool:
        """Whether an input is a stored table."""
        return not self.typed_node(InputRef.parse(reference).node).has_operator

    def crossable(self, node: TypedNode) -> bool:
        """Whether the windows of a node allow moving a select from above it to below it.

        The rows of a window by rows depend on all previous rows; and the first window with an answer ends a
        one-time query, so that rows must not be filtered before it.
        """
        return not node.counts_rows and not (self.surroundings.one_time and node.windowed)
