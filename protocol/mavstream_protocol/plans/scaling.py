"""Scaled aggregates: counts, sums and averages that compensate for rows dropped by load shedding.

Each column gets a companion, `<name>_error`: the true value lies within that distance of the scaled one in
95 of 100 windows. Inference types them for streams without shedding: plain values, as floats, and errors of
zero. A backend that sheds replaces them by weighted sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from mavstream_protocol.expressions.coercion import FLOAT, cast
from mavstream_protocol.expressions.functions import OPERATORS
from mavstream_protocol.expressions.typed import AggregateCall, AggregateExpression, ColumnRef, Literal
from mavstream_protocol.plans.inference_scope import Scope
from mavstream_protocol.plans.plan import AggregateNode, InputRef
from mavstream_protocol.plans.windows import RowWindow, SessionWindow
from mavstream_protocol.typed_plan import TypedNode, all_below

ERROR = "_error"
"""Suffix of the name of a companion column."""
_LONGEST_NAME = 64
_FUNCTIONS = ("count", "sum", "avg")

Columns = list[tuple[str, AggregateExpression]]


def scale(node: AggregateNode, compute: Columns, scope: Scope) -> Columns:
    """Return the scaled columns, each followed by its error column; errors are recorded in the scope."""
    if isinstance(node.window, RowWindow):
        scope.fail(
            "scaled",
            "not_scalable",
            "a window by rows is full when so many rows were kept, so nothing says how many it stands for; "
            "take a window by time, or leave `scaled` out",
        )
    if isinstance(node.window, SessionWindow):
        scope.fail(
            "scaled",
            "not_scalable",
            "a session ends where rows are missing, so shed rows change which rows it has; take a tumbling "
            "or hopping window, or leave `scaled` out",
        )
    _check_rows(scope)
    made: Columns = []
    taken = {*node.by, *node.compute, "window_start", "window_end"}
    for name, expression in compute:
        companion = f"{name}{ERROR}"
        if companion in taken or len(companion) > _LONGEST_NAME:
            scope.fail(
                f"compute/{name}",
                "duplicate_column" if companion in taken else "invalid_name",
                f"the error of {name!r} is to be the column {companion!r}, which "
                f"{'there is already' if companion in taken else 'is longer than 64'}; choose another name",
            )
        call = _only_call(expression)
        if call is None:
            scope.fail(
                f"compute/{name}",
                "not_scalable",
                f"column {name!r} of a scaled aggregate must be count(*), count(x), sum(x) or avg(x) alone, "
                "not distinct: nothing else has an error that can be told; put the rest into another "
                "aggregate, or compute with the results in a project above",
            )
        else:
            made += ((name, _value(call)), (companion, _error(call)))
    return made


def _only_call(expression: AggregateExpression) -> AggregateCall | None:
    """Return the call that a column consists of, if it can be scaled."""
    result = expression.result
    if len(expression.calls) != 1 or not isinstance(result, ColumnRef) or not result.name.startswith("#"):
        return None
    call = expression.calls[0]
    return call if call.function in _FUNCTIONS and not call.distinct else None


def _value(call: AggregateCall) -> AggregateExpression:
    if call.function == "sum" and call.argument is not None:
        # Weights are floats, so sums are.
        call = AggregateCall("sum", cast(call.argument, FLOAT), False, FLOAT, True)
    return AggregateExpression(cast(ColumnRef("#0", call.type, call.nullable), FLOAT), (call,))


def _error(call: AggregateCall) -> AggregateExpression:
    """Return zero, or null where there is no value that it could be the error of."""
    value = _value(call)
    if not call.nullable:
        return AggregateExpression(Literal(0.0, FLOAT), value.calls)
    missing = OPERATORS["is_null"].call((ColumnRef("#0", FLOAT, True),), "")
    nothing = Literal(None, FLOAT)
    return AggregateExpression(
        OPERATORS["case"].call((missing, nothing, Literal(0.0, FLOAT)), ""), value.calls
    )


def _check_rows(scope: Scope) -> None:
    """Reject inputs whose rows are not rows of streams, each at most once.

    The error estimate assumes that each row was retained or shed independently. Joined rows that stem from
    the same row are retained or shed together, and a row of a window combines many rows.
    """
    for node in all_below(scope.typed, scope.inputs[0]):
        if not node.makes_rows:
            if node.name not in scope.repeated:
                scope.repeated[node.name] = _repeated_stream(node, scope)
            stream = scope.repeated[node.name]
            if stream is not None:
                scope.fail(
                    "scaled",
                    "not_scalable",
                    f"union {node.name!r} below may give a row of stream {stream!r} twice, and such "
                    "rows are kept or lost together, so the error cannot be told; read the stream once, "
                    "or part its rows with a split",
                )
                return
        else:
            scope.fail(
                "scaled",
                "not_scalable",
                f"a scaled aggregate counts rows of streams, and {node.name!r} below makes new ones, which "
                "are kept or lost together, so the error cannot be told; only select, project, split and "
                "union may stand between, or leave `scaled` out",
            )
            return


def _repeated_stream(node: TypedNode, scope: Scope) -> str | None:
    """Return a stream of which two inputs of a node may have the same row."""
    inputs = [(scope.fed_by[one.node], dict(_outputs(scope, one))) for one in node.inputs[1:] and node.inputs]
    for (some, left), (others, right) in combinations(inputs, 2):
        shared = some & others
        # Rows from different outputs of one split are different.
        if shared and not any(left.get(split, output) != output for split, output in right.items()):
            return min(shared)
    return None


def _outputs(scope: Scope, reference: InputRef) -> Iterator[tuple[str, str]]:
    """Yield the splits below an input, with the output taken, down to a stream or several inputs."""
    while True:
        node = scope.typed[reference.node]
        if reference.output is not None:
            yield node.name, reference.output
        if len(node.inputs) != 1:
            return
        reference = node.inputs[0]
