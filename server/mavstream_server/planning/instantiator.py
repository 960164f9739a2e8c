"""The instantiator: turns a typed plan into operators and queues, bottom-up, and leaves the plan as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from mavstream_protocol.expressions.typed import Expression, references
from mavstream_protocol.plan import InputRef
from mavstream_protocol.queries import OnError
from mavstream_protocol.typed_plan import (
    TypedAggregate,
    TypedExcept,
    TypedJoin,
    TypedNode,
    TypedPlan,
    TypedProject,
    TypedSelect,
    TypedSource,
    TypedSplit,
    TypedTable,
    TypedTableJoin,
    TypedUnion,
)
from mavstream_server.log.cursor import Cursor
from mavstream_server.operators.aggregate import Aggregate
from mavstream_server.operators.except_rows import Except
from mavstream_server.operators.joins.interval_join import IntervalJoin
from mavstream_server.operators.joins.table_join import Key, TableJoin
from mavstream_server.operators.joins.window_join import WindowJoin
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.output import Output, Sink
from mavstream_server.operators.project import Project
from mavstream_server.operators.queue import Queue, QueueAccount
from mavstream_server.operators.select import Select
from mavstream_server.operators.shedding.shedder import Shedder
from mavstream_server.operators.source import Needs, Source
from mavstream_server.operators.split import Split
from mavstream_server.operators.union import OrderedUnion, Union
from mavstream_server.tables.stored import StoredTable

_WINDOW = frozenset(("window_start", "window_end"))

OUTPUT = "#output"
"""The name of the operator above the root; no node can have it."""

CursorMaker = Callable[[str], Cursor]
"""Returns a cursor on a stream, standing where the query starts."""
TableOpener = Callable[[str], StoredTable]
"""Returns a stored table."""
OperatorMaker = Callable[[TypedNode], Operator]
"""Returns the operator of a node."""


@dataclass(slots=True)
class Network:
    """The operators of a running query and what waits between them."""

    operators: dict[str, Operator] = field(default_factory=dict)
    """By node name, bottom-up: sources first seen first, the output last."""
    account: QueueAccount = field(default_factory=QueueAccount)
    paths: tuple[tuple[str, ...], ...] = ()
    """Operator names from leaf to output, one path per source; sources themselves left out."""

    @property
    def sources(self) -> list[Source]:
        """The leaves."""
        return [operator for operator in self.operators.values() if isinstance(operator, Source)]

    @property
    def output(self) -> Output:
        """The operator above the root."""
        output = self.operators[OUTPUT]
        assert isinstance(output, Output)
        return output


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a plan is run, apart from what it says."""

    on_error: OnError = OnError.NULL
    one_time: bool = False
    start_at: int | None = None
    stop_at: int | None = None
    worth: Mapping[str, Expression] = field(default_factory=dict)
    """Which rows go first where load is shed: those that this makes smallest, by stream; else any."""


def instantiate(
    plan: TypedPlan,
    options: RunOptions,
    cursor: CursorMaker,
    sink: Sink,
    now: Callable[[], int],
    table: TableOpener,
) -> Network:
    """Build the operators of a plan, each behind its inputs, and wire their queues."""
    output = Output(OUTPUT, plan.schema.names, sink, now)
    return _built(plan, options, cursor, table, needed_columns(plan), needs_of(plan), output)


def instantiate_below(
    plan: TypedPlan,
    options: RunOptions,
    cursor: CursorMaker,
    table: TableOpener,
    columns: tuple[str, ...],
    needs: Needs,
    output: Output,
) -> Network:
    """Build the lower part of other plans, which read these columns of its root and need to know that."""
    return _built(plan, options, cursor, table, needed_columns(plan, columns), needs, output)


def _built(
    plan: TypedPlan,
    options: RunOptions,
    cursor: CursorMaker,
    table: TableOpener,
    needed: Mapping[str, tuple[str, ...]],
    needs: Needs,
    output: Output,
) -> Network:
    network = Network()
    make = operator_maker(plan, options, table, needed)
    for node in plan.nodes.values():
        if isinstance(node, TypedTable):
            continue  # its join has it
        if isinstance(node, TypedSource):
            operator: Operator = Source(
                node.name,
                cursor(node.stream),
                needed[node.name],
                needs,
                options.start_at,
                options.stop_at,
                Shedder(node.stream, options.worth.get(node.stream)),
            )
        else:
            operator = make(node)
        connect(network.account, operator, node.inputs, network.operators)
        network.operators[node.name] = operator
    connect(network.account, output, (plan.root,), network.operators)
    network.operators[OUTPUT] = output
    network.paths = paths_to_output(plan)
    return network


def operator_maker(
    plan: TypedPlan,
    options: RunOptions,
    table: TableOpener,
    needed: Mapping[str, tuple[str, ...]] | None = None,
) -> OperatorMaker:
    """Return what makes the operators of a plan's nodes, but for sources and tables; not connected yet."""
    needed = needed_columns(plan) if needed is None else needed
    once = one_time_node(plan) if options.one_time else None

    def make(node: TypedNode) -> Operator:
        if isinstance(node, TypedTableJoin):
            return _table_join(node, table(node.table), set(needed[node.name]), options.on_error)
        inputs = [plan.nodes[reference.node] for reference in node.inputs]
        return _operator(node, inputs, needed, options.on_error, node.name == once)

    return make


def connect(
    account: QueueAccount,
    operator: Operator,
    inputs: tuple[InputRef, ...],
    operators: Mapping[str, Operator],
) -> None:
    """Give an operator a queue for each of its inputs, which are among `operators`."""
    for reference in inputs:
        queue = Queue(account)
        operator.inputs.append(queue)
        operators[reference.node].attach(queue, reference.output)


def paths_to_output(plan: TypedPlan) -> tuple[tuple[str, ...], ...]:
    """Return the paths of a plan as a network has them."""
    return tuple((*path[1:], OUTPUT) for path in plan.paths())


def _operator(
    node: TypedNode,
    inputs: list[TypedNode],
    needed: Mapping[str, tuple[str, ...]],
    on_error: OnError,
    once: bool,
) -> Operator:
    match node:
        case TypedSelect():
            return Select(node.name, node.where, needed[node.name], on_error)
        case TypedProject():
            wanted = set(needed[node.name])
            return Project(node.name, [c for c in node.compute if c[0] in wanted], on_error)
        case TypedSplit():
            return Split(node.name, node.outputs, needed[node.name], on_error)
        case TypedUnion():
            kind = OrderedUnion if node.ordered else Union
            return kind(node.name, len(node.inputs), needed[node.name])
        case TypedAggregate():
            types = {f.name: f.type for f in inputs[0].schema}
            by = [(name, types[name]) for name in node.by]
            return Aggregate(node.name, by, node.window, node.compute, on_error, once)
        case TypedExcept():
            compared = [(f.name, f.type) for f in node.schema if f.name not in _WINDOW]
            return Except(node.name, compared, node.window, once)
        case TypedJoin():
            return _join(node, inputs, on_error, once)
        case _:
            raise AssertionError(f"no operator for {type(node).__name__}")


def _join(node: TypedJoin, inputs: list[TypedNode], on_error: OnError, once: bool) -> Operator:
    types = {f.name: f.type for f in inputs[0].schema}
    keys = [(left, right, types[left]) for left, right in node.on]
    left, right = _join_columns(node, 0), _join_columns(node, 1)
    if node.within is not None:
        return IntervalJoin(
            node.name, keys, (left, right), node.within, node.where, node.compute, node.ordered, on_error
        )
    assert node.window is not None
    kept = (sorted({*left, *(key[0] for key in keys)}), sorted({*right, *(key[1] for key in keys)}))
    return WindowJoin(
        node.name, keys, kept, node.window, node.where, node.compute, node.ordered, on_error, once
    )


def _table_join(node: TypedTableJoin, table: StoredTable, wanted: set[str], on_error: OnError) -> Operator:
    types = {f.name: f.type for f in node.table_schema}
    keys = [Key(left, right, types[right]) for left, right in node.on]
    compute = [column for column in node.compute if column[0] in wanted]
    return TableJoin(node.name, table, keys, node.where, compute, node.outer, on_error)


def needs_of(plan: TypedPlan) -> Needs:
    """Return what sources must tell of each row for the operators above to work."""
    timed = (TypedAggregate, TypedExcept, TypedJoin)
    ordered = any(isinstance(n, TypedUnion | TypedJoin) and n.ordered for n in plan.nodes.values())
    return Needs(ordered or any(isinstance(n, timed) for n in plan.nodes.values()), ordered)


def needed_columns(plan: TypedPlan, above: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
    """Return which columns of each node are read above it, in schema order: no others are carried.

    `above` are those that are read of the root: all, if it is not given.
    """
    wanted: dict[str, set[str]] = {name: set() for name in plan.nodes}
    wanted[plan.root.node] |= set(plan.schema.names if above is None else above)
    for node in reversed(list(plan.nodes.values())):
        for place, reference in enumerate(node.inputs):
            wanted[reference.node] |= _read_columns(node, place, wanted[node.name])
    return {
        name: tuple(column for column in plan.nodes[name].schema.names if column in columns)
        for name, columns in wanted.items()
    }


def _read_columns(node: TypedNode, place: int, wanted: set[str]) -> set[str]:
    """Return the columns that a node reads from one of its inputs."""
    match node:
        case TypedSelect():
            return wanted | set(references(node.where))
        case TypedProject():
            return {name for column, e in node.compute if column in wanted for name in references(e)}
        case TypedSplit():
            return wanted | {name for _, e in node.outputs for name in references(e)}
        case TypedAggregate():
            arguments = [call.argument for _, e in node.compute for call in e.calls if call.argument]
            return set(node.by) | {name for argument in arguments for name in references(argument)}
        case TypedExcept():
            return set(node.schema.names) - _WINDOW
        case TypedJoin():
            expressions = [e for _, e in node.compute]
            return _side_columns(expressions, node.where, place) | {pair[place] for pair in node.on}
        case TypedTableJoin():
            expressions = [e for column, e in node.compute if column in wanted]
            return _side_columns(expressions, node.where, 0) | {left for left, _ in node.on}
        case _:
            return wanted


def _join_columns(node: TypedJoin, place: int) -> tuple[str, ...]:
    """Return the columns of one side that pairs are made of."""
    return tuple(sorted(_side_columns([e for _, e in node.compute], node.where, place)))


def _side_columns(expressions: list[Expression], where: Expression | None, place: int) -> set[str]:
    """Return the columns of one side that the expressions of a join read."""
    prefix = ("l.", "r.")[place]
    read = expressions if where is None else [*expressions, where]
    names = {name for e in read for name in references(e) if name.startswith(prefix)}
    return {name.removeprefix(prefix) for name in names}


def one_time_node(plan: TypedPlan) -> str:
    """Return the windowed node whose first answer ends a one-time query."""
    node = plan.nodes[plan.root.node]
    while isinstance(node, TypedSelect | TypedProject | TypedSplit):
        node = plan.nodes[node.inputs[0].node]
    return node.name
