"""The subject of a rewriting step: a plan, its types, who reads what, and how the query treats errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.graph import bottom_up, readers
from mavstream_protocol.inference import infer
from mavstream_protocol.plan import InputRef, Plan
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import Field, Schema
from mavstream_protocol.typed_plan import StreamShape, TypedNode, TypedPlan
from mavstream_server.planning.rewriting.expressions import can_fail


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What rules must know besides the plan."""

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
    """A plan to be rewritten. Rules read it and build new plans; they change nothing."""

    plan: Plan
    typed: TypedPlan
    surroundings: Surroundings
    rank: Callable[[str], float] = lambda _name: 0.0
    """How late a select should come in a row of selects, by its measured figures: low ranks first."""

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The nodes, each behind what it reads: rules look at them in this order."""
        return bottom_up(self.plan)

    @cached_property
    def _readers(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for reference, names in readers(self.plan).items():
            found.setdefault(reference.node, []).extend(names)
        return found

    def readers(self, name: str) -> list[str]:
        """Return the nodes that read a node, once per place where they do."""
        return self._readers.get(name, [])

    def only_reader(self, name: str) -> str | None:
        """Return the one node that reads a node, in one place; None if others do or it is the root.

        Nothing is moved past a node that somebody else reads: the other would see the change.
        """
        names = self.readers(name)
        return names[0] if len(names) == 1 and InputRef.parse(self.plan.root).node != name else None

    def below(self, name: str, field_: str = "input") -> str:
        """Return the node that a field of a node names."""
        return InputRef.parse(getattr(self.plan.nodes[name], field_)).node

    def columns(self, name: str) -> dict[str, Field]:
        """Return the columns that expressions of a node read, as they name them.

        Those of a table that a left join looks into are nullable, as the columns that it computes see them.
        """
        typed, below = self.typed_node(name), self.plan.nodes[name].reads().values()
        outer = typed.lookup is not None and typed.lookup.outer
        found: dict[str, Field] = {}
        for place, (side, reference) in enumerate(zip(typed.sides, below, strict=True)):
            for column in self.schema(reference):
                nullable = column.nullable or (outer and place > 0)
                found[side + column.name] = replace(column, nullable=nullable)
        return found

    def schema(self, reference: str) -> Schema:
        """Return the columns of an input."""
        return self.typed.nodes[InputRef.parse(reference).node].schema

    def typed_node(self, name: str) -> TypedNode:
        """Return a node with its types."""
        return self.typed.nodes[name]

    def may_move(self, expressions: Iterable[Expression]) -> bool:
        """Whether expressions may see more or fewer rows than they do.

        With `on_error: fail` one that can fail may not: the rows that it sees decide whether the query
        lives. Otherwise a row whose predicate fails is left out wherever that is found; only how many
        errors are counted depends on the place.
        """
        return self.surroundings.on_error is not OnError.FAIL or not any(map(can_fail, expressions))

    @cached_property
    def may_forget(self) -> bool:
        """Whether columns that were computed need not be computed any more.

        The engine computes a column only if it is read. Where rows with failures are skipped or end the
        query, one that can fail must go on being read, be it by a column that nobody looks at.
        """
        if self.surroundings.on_error is OnError.NULL:
            return True
        return not any(can_fail(e) for node in self.typed.nodes.values() for e in node.computed())

    def is_table(self, reference: str) -> bool:
        """Whether an input is a stored table."""
        return not self.typed_node(InputRef.parse(reference).node).has_operator

    def crossable(self, node: TypedNode) -> bool:
        """Whether a select above a node may go below it, as far as windows are concerned.

        Which rows are in a window by rows depends on all rows before; and the first window with an answer
        ends a one-time query, so rows must not be filtered out sooner.
        """
        return not node.counts_rows and not (self.surroundings.one_time and node.windowed)
