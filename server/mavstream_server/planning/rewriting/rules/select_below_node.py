"""Select below a node: filter rows before columns are computed or duplicates removed."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_protocol.expressions.typed import references
from mavstream_server.planning.rewriting.editing import Draft, moved_select
from mavstream_server.planning.rewriting.expressions import can_fail, distinguishes_zeros, substituted
from mavstream_server.planning.rewriting.matching import every, select_at
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject
from mavstream_server.planning.rewriting.texts import text_of


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Move a select below a node that allows it, with its columns replaced by what computes them.

    - The select must be the only reader of the node, and the node must compute all columns that the predicate
      reads from single rows.
    - In a one-time query the node must have no window.
    - The columns that the predicate reads must not be able to fail: a failed column is only null itself, but
      makes the whole predicate null once it is part of it.
    - If the node merges equal rows, the predicate must have the same value for all of them.
    - With `on_error: fail` neither the predicate nor the node's columns may be able to fail.
    """
    for name, node, typed in every(subject, select_at):
        below = subject.below(name)
        lower, inner = subject.typed_node(below), subject.plan.nodes[below]
        if not lower.row_columns or not lower.commutes_with_select or not subject.crossable(lower):
            continue
        compute, read = dict(lower.row_columns), set(references(typed.where))
        if subject.only_reader(below) is None or not read <= set(compute):
            continue
        if any(can_fail(compute[column]) for column in read):
            continue
        if lower.makes_rows and distinguishes_zeros(typed.where):
            continue
        if not subject.may_move((typed.where, *compute.values())):
            continue
        where = substituted(typed.where, compute)
        text = None if where is None else text_of(where, subject.columns(below))
        if text is not None:
            draft = Draft(subject.plan)
            (input_,) = inner.reads().values()
            draft.reconnect(name, below)
            draft.put(name, moved_select(node, input_, text))
            draft.put(below, inner.reading({input_: name}))
            yield Rewrite(draft, name, f"moved below the {lower.op} {below}")


RULE = RewriteRule(
    "select below node",
    "Moves a select below a project or a distinct by time if no column in its predicate can fail.",
    rewrites,
)
