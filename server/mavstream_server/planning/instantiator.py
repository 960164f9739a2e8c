"""The instantiator: builds the operators and queues of a typed plan, bottom-up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mavstream_protocol.plans.plan import InputRef
from mavstream_protocol.queries import OnError
from mavstream_protocol.typed_plan import (
    WINDOW_COLUMNS,
    TypedAggregate,
    TypedExcept,
    TypedJoin,
    TypedNode,
    TypedPlan,
    TypedProject,
    TypedSelect,
    TypedSessions,
    TypedSplit,
    TypedTableJoin,
    TypedUnion,
)
from mavstream_server.log.cursor import Cursor
from mavstream_server.operators.aggregate import Aggregate
from mavstream_server.operators.except_rows import Except
from mavstream_server.operators.first_time import FirstTime
from mavstream_server.operators.joins.interval_join import IntervalJoin
from mavstream_server.operators.joins.table_join import Key, TableJoin
from mavstream_server.operators.joins.window_join import WindowJoin
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.output import Output, Sink
from mavstream_server.operators.project import Project
from mavstream_server.operators.queue import Queue, QueueAccount
from mavstream_server.operators.result_source import ResultSource
from mavstream_server.operators.select import Select
from mavstream_server.operators.session_aggregate import SessionAggregate
from mavstream_server.operators.shedding.shedder import Shedder
from mavstream_server.operators.source import Needs, Source
from mavstream_server.operators.split import Split
from mavstream_server.operators.union import OrderedUnion, Union
from mavstream_server.planning.paths import OUTPUT, paths_to_output
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.tables.stored import StoredTable

CursorMaker = Callable[[str], Cursor]
"""Returns a cursor on a stream, at the position where the query starts."""
TableOpener = Callable[[str], StoredTable]
"""Opens a stored table by its name."""
OperatorMaker = Callable[[TypedNode], Operator]
"""Creates the operator of a node."""


@dataclass(slots=True)
class Network:
    """The operators of a running query and the account of the queues between them."""

    operators: dict[str, Operator] = field(default_factory=dict)
    """Operators by node name, bottom-up: an operator follows its inputs, and the output is last."""
    account: QueueAccount = field(default_factory=QueueAccount)
    paths: tuple[tuple[str, ...], ...] = ()
    """Operator names from leaf to output, one path per source; the sources themselves are not included."""

    @property
    def sources(self) -> list[Source]:
        """The sources of the query."""
        return [operator for operator in self.operators.values() if isinstance(operator, Source)]

    @property
    def output(self) -> Output:
        """The output, which is the operator above the plan's root."""
        output = self.operators[OUTPUT]
        assert isinstance(output, Output)
        return output

    def choose_watermarks(self) -> None:
        """Let watermarks without rows pass only where an operator above acts on them.

        Otherwise each row that no select of a query lets through would cost a turn of all its operators.
        """
        for operator in reversed(self.operators.values()):
            above = any(queue.takes_watermarks for queue in operator.all_outputs)
            for queue in operator.inputs:
                queue.takes_watermarks = above or operator.acts_on_watermarks


def instantiate(
    plan: TypedPlan,
    options: RunOptions,
    cursor: CursorMaker,
    sink: Sink,
    now: Callable[[], int],
    table: TableOpener,
) -> Network:
    """Build the operators of a plan, bottom-up, and connect them with queues."""
    output = Output(OUTPUT, plan.schema.names, sink, now)
    return _built(plan, options, cursor, table, plan.needed_columns(), needs_of(plan), output)


def instantiate_below(
    plan: TypedPlan,
    options: RunOptions,
    cursor: CursorMaker,
    table: TableOpener,
    columns: tuple[str, ...],
    needs: Needs,
    output: Output,
) -> Network:
    """Build a prefix of other plans, which read `columns` of its root and need `needs` of its rows."""
    return _built(plan, options, cursor, table, plan.needed_columns(columns), needs, output)


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
    sources = {source.name: source for source in plan.sources}
    for node in plan.operating:
        source = sources.get(node.name)
        if source is None:
            operator = make(node)
        else:
            kind = Source if source.query is None else ResultSource
            operator = kind(
                node.name,
                cursor(source.stream),
                needed[node.name],
                needs,
                options.start_at,
                options.stop_at,
                Shedder(source.stream, options.utility.get(source.stream)),
                FirstTime(options.since) if options.one_time else None,
            )
        connect(network.account, operator, node.inputs, network.operators)
        network.operators[node.name] = operator
    connect(network.account, output, (plan.root,), network.operators)
    output.sources = network.sources
    network.operators[OUTPUT] = output
    network.paths = paths_to_output(plan)
    network.choose_watermarks()
    return network


def operator_maker(
    plan: TypedPlan,
    options: RunOptions,
    table: TableOpener,
    needed: Mapping[str, tuple[str, ...]] | None = None,
) -> OperatorMaker:
    """Return a function that makes unconnected operators of a plan's nodes, except sources and tables."""
    needed = plan.needed_columns() if needed is None else needed
    once = plan.one_time_node.name if options.one_time else None
    ordered = plan.ordered

    def make(node: TypedNode) -> Operator:
        inputs = [plan.nodes[reference.node] for reference in node.inputs]
        in_order = all(ordered[reference.node] for reference in node.inputs)
        making = Making(inputs, in_order, needed[node.name], options.on_error, node.name == once, table)
        operator = MAKERS[type(node.runs_as)](node.runs_as, making)
        operator.kind = node.op
        return operator

    return make


def connect(
    account: QueueAccount,
    operator: Operator,
    inputs: tuple[InputRef, ...],
    operators: Mapping[str, Operator],
) -> None:
    """Create a queue for each input of an operator and attach it to the input, one of `operators`."""
    for reference in inputs:
        queue = Queue(account)
        operator.inputs.append(queue)
        operators[reference.node].attach(queue, reference.output)


def needs_of(plan: TypedPlan) -> Needs:
    """Return what the operators of a plan need of each row besides its columns."""
    return Needs(position=any(node.needs_position for node in plan.nodes.values()))


class Making(NamedTuple):
    """The arguments for making the operator of a node, besides the node."""

    inputs: list[TypedNode]
    ordered: bool
    """Whether the order of the inputs' rows depends on the logs alone."""
    needed: tuple[str, ...]
    """The node's columns that downstream nodes read."""
    on_error: OnError
    once: bool
    """Whether the first window of the node ends a one-time query."""
    table: TableOpener


def _select(node: TypedSelect, making: Making) -> Operator:
    return Select(node.name, node.where, making.needed, making.on_error)


def _project(node: TypedProject, making: Making) -> Operator:
    wanted = set(making.needed)
    return Project(node.name, [c for c in node.compute if c[0] in wanted], making.on_error)


def _split(node: TypedSplit, making: Making) -> Operator:
    return Split(node.name, node.outputs, making.needed, making.on_error)


def _union(node: TypedUnion, making: Making) -> Operator:
    kind = OrderedUnion if node.ordered else Union
    return kind(node.name, len(node.inputs), making.needed)


def _aggregate(node: TypedAggregate, making: Making) -> Operator:
    types = {f.name: f.type for f in making.inputs[0].schema}
    by = [(name, types[name]) for name in node.by]
    return Aggregate(
        node.name, by, node.window, node.compute, making.on_error, making.once, ordered=making.ordered
    )


def _sessions(node: TypedSessions, making: Making) -> Operator:
    types = {f.name: f.type for f in making.inputs[0].schema}
    by = [(name, types[name]) for name in node.by]
    return SessionAggregate(
        node.name, by, node.window, node.compute, making.on_error, making.once, ordered=making.ordered
    )


def _except(node: TypedExcept, making: Making) -> Operator:
    compared = [(f.name, f.type) for f in node.schema if f.name not in WINDOW_COLUMNS]
    return Except(node.name, compared, node.window, making.once)


def _join(node: TypedJoin, making: Making) -> Operator:
    types = {f.name: f.type for f in making.inputs[0].schema}
    keys = [(left, right, types[left]) for left, right in node.on]
    left, right = (tuple(sorted(node.paired_columns(port))) for port in (0, 1))
    shown, on_error = (node.where, node.compute, node.ordered), making.on_error
    if node.within is not None:
        return IntervalJoin(node.name, keys, (left, right), node.within, *shown, on_error)
    assert node.window is not None
    kept = (sorted({*left, *(key[0] for key in keys)}), sorted({*right, *(key[1] for key in keys)}))
    return WindowJoin(node.name, keys, kept, node.window, *shown, on_error, making.once)


def _table_join(node: TypedTableJoin, making: Making) -> Operator:
    types = {f.name: f.type for f in node.table_schema}
    keys = [Key(left, right, types[right]) for left, right in node.on]
    wanted = set(making.needed)
    compute = [column for column in node.compute if column[0] in wanted]
    table = making.table(node.table)
    return TableJoin(node.name, table, keys, node.where, compute, node.outer, making.on_error)


MAKERS: Mapping[type[TypedNode], Callable[[Any, Making], Operator]] = {
    TypedSelect: _select,
    TypedProject: _project,
    TypedSplit: _split,
    TypedUnion: _union,
    TypedAggregate: _aggregate,
    TypedSessions: _sessions,
    TypedExcept: _except,
    TypedJoin: _join,
    TypedTableJoin: _table_join,
}
"""The function that makes the operator, by type of node; sources are not included, as they need a cursor."""
