"""Select below union: filters rows in each input of a union."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_server.planning.rewriting.editing import Draft, moved_select
from mavstream_server.planning.rewriting.matching import every, select_at, union_at
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Move a select below the union that it reads, once for each input.

    Rows carry their own watermarks and marks pass a select unchanged, so which rows are late for an ordered
    union and when it releases them does not change, and the remaining rows stay in order. The select must be
    the only reader of the union. With `on_error: fail` the predicate must not be able to fail: below an
    ordered union it is evaluated for late rows, too.
    """
    for name, node, typed in every(subject, select_at):
        found = union_at(subject, subject.below(name))
        if found is None or subject.only_reader(found.name) is None:
            continue
        below, union, _ = found
        if not subject.may_move((typed.where,)):
            continue
        draft = Draft(subject.plan)
        draft.reconnect(name, below)
        changes: dict[str, str] = {}
        for input_ in dict.fromkeys(union.inputs):  # an input that is read twice is filtered once
            changes[input_] = draft.fresh(name) if changes else name
            draft.put(changes[input_], moved_select(node, input_))
        draft.put(below, union.reading(changes))
        yield Rewrite(draft, name, f"moved below the union {below}, into {len(changes)} inputs")


RULE = RewriteRule(
    "select below union",
    "Moves a select below a union, into every input; with `on_error: fail` only if it cannot fail.",
    rewrites,
)
