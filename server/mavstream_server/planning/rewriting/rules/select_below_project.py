"""Select below project: sort rows out before their columns are computed, or whatever else is done to them."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_protocol.expressions.typed import references
from mavstream_server.planning.rewriting.editing import Draft, select
from mavstream_server.planning.rewriting.expressions import can_fail, put_in
from mavstream_server.planning.rewriting.matching import every, select_at
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject
from mavstream_server.planning.rewriting.texts import text_of


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Move a select below the project it reads, its columns replaced by what the project computes.

    The same for any node that says that selects may go below it.

    - The project must be read by the select alone.
    - The columns that the predicate reads must not be able to fail: a failed column is null by itself,
      but makes the whole predicate null once it is a part of it.
    - With `on_error: fail` neither the predicate nor the project may be able to fail.
    """
    for name, _, typed in every(subject, select_at):
        below = subject.below(name)
        project, inner = subject.typed_node(below), subject.plan.nodes[below]
        if not project.row_columns or not project.commutes_with_select or not subject.crossable(project):
            continue
        compute, read = dict(project.row_columns), set(references(typed.where))
        if subject.only_reader(below) is None or not read <= set(compute):
            continue
        if any(can_fail(compute[column]) for column in read):
            continue
        if not subject.may_move((typed.where, *compute.values())):
            continue
        where = put_in(typed.where, compute)
        text = None if where is None else text_of(where, subject.columns(below))
        if text is not None:
            draft = Draft(subject.plan)
            (input_,) = inner.reads().values()
            draft.reconnect(name, below)
            draft.put(name, select(input_, text))
            draft.put(below, inner.reading({input_: name}))
            yield Rewrite(draft, name, f"moved below the {project.op} {below}")


RULE = RewriteRule(
    "select below project",
    "A select goes below the project it reads if no column in its predicate can fail.",
    rewrites,
)
