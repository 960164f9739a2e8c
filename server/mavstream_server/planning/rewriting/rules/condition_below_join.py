"""Condition below join: evaluates conditions on one side of a join before rows are matched."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_protocol.expressions.typed import Expression
from mavstream_server.planning.rewriting.editing import Draft
from mavstream_server.planning.rewriting.joins import LEFT, RIGHT, put_below, sides_of, wheres, with_where
from mavstream_server.planning.rewriting.matching import any_join_at, every
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Turn conjuncts of a join's condition that read one side into selects below that side.

    This does not apply to windows by rows, which count all rows, nor to a left join with a table, whose
    condition only decides what matches; and a select cannot read a table. With `on_error: fail` no conjunct
    may be able to fail.
    """
    for name, join, typed in every(subject, any_join_at):
        if join.how != "inner" or typed.counts_rows or not subject.may_move(wheres(typed)):
            continue
        parts: dict[str, list[Expression]] = {LEFT: [], RIGHT: []}
        kept: list[Expression] = []
        for part in wheres(typed):
            sides = sides_of(part)
            if len(sides) != 1 or (sides == {RIGHT} and subject.is_table(join.right)):
                kept.append(part)
            else:
                parts[next(iter(sides))].append(part)
        moved = len(parts[LEFT]) + len(parts[RIGHT])
        if not moved:
            continue
        draft = Draft(subject.plan)
        changed = put_below(subject, draft, join, parts, f"{name}_input")
        if changed is not None:
            changed = with_where(subject, name, changed, kept)
        if changed is not None:
            draft.put(name, changed)
            yield Rewrite(draft, name, f"{moved} of its conditions moved below it")


RULE = RewriteRule(
    "condition below join",
    "Moves conditions of an inner join that read one side into a select below that side; not past a window "
    "by rows.",
    rewrites,
)
