"""Select below project: sort rows out before their columns are computed."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_protocol.expressions.typed import references
from mavstream_protocol.plan import ProjectNode, SelectNode
from mavstream_protocol.typed_plan import TypedProject, TypedSelect
from mavstream_server.planning.rewriting.editing import Draft, select, with_inputs
from mavstream_server.planning.rewriting.expressions import can_fail, put_in
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject
from mavstream_server.planning.rewriting.texts import text_of


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Move a select below the project it reads, its columns replaced by what the project computes.

    - The project must be read by the select alone.
    - The columns that the predicate reads must not be able to fail: a failed column is null by itself,
      but makes the whole predicate null once it is a part of it.
    - With `on_error: fail` neither the predicate nor the project may be able to fail.
    """
    for name in subject.order:
        node, typed = subject.plan.nodes[name], subject.typed_node(name)
        if not isinstance(node, SelectNode) or not isinstance(typed, TypedSelect):
            continue
        below = subject.below(name)
        project, inner = subject.typed_node(below), subject.plan.nodes[below]
        if not isinstance(inner, ProjectNode) or not isinstance(project, TypedProject):
            continue
        if subject.only_reader(below) is None:
            continue
        compute = dict(project.compute)
        if any(can_fail(compute[column]) for column in references(typed.where)):
            continue
        if not subject.may_move((typed.where, *compute.values())):
            continue
        where = put_in(typed.where, compute)
        text = None if where is None else text_of(where, subject.columns(below))
        if text is not None:
            draft = Draft(subject.plan)
            draft.reconnect(name, below)
            draft.put(name, select(inner.input, text))
            draft.put(below, with_inputs(inner, {inner.input: name}))
            yield Rewrite(draft, name, f"moved below the project {below}")


RULE = RewriteRule(
    "select below project",
    "A select goes below the project it reads if no column in its predicate can fail.",
    rewrites,
)
