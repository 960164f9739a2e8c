"""Select below join: filters rows before they are joined."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_protocol.expressions.typed import Expression, references
from mavstream_server.planning.rewriting.editing import Draft, select, unsized
from mavstream_server.planning.rewriting.expressions import can_fail, conjunction, conjuncts, substituted
from mavstream_server.planning.rewriting.joins import LEFT, RIGHT, put_below, sides_of, wheres, with_where
from mavstream_server.planning.rewriting.matching import AnyJoin, Select, any_join_at, every, select_at
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject
from mavstream_server.planning.rewriting.texts import text_of

_PAIRS = "pairs"
_ABOVE = "above"


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Move the conjuncts of a select above a join as far down as the columns that they read allow.

    Conjuncts over one side become a select below that side, conjuncts over both sides a condition of the
    join; conjuncts over the window's bounds stay. Marks pass a select, and whether a row is late depends on
    the row alone, so the same windows close at the same marks with the pairs that would have passed.

    - The select must be the only reader of the join, which must not have a window by rows, or, in a one-time
      query, any window.
    - Columns that a conjunct reads must not be able to fail (see select below node).
    - A select cannot read a table. In a left join with a table, only conjuncts over the left side move: rows
      without a match are emitted, and conditions on the table's columns apply to their nulls.
    - With `on_error: fail` neither the predicate nor any expression of the join may be able to fail.
    """
    for upper in every(subject, select_at):
        join = any_join_at(subject, subject.below(upper.name))
        if join is None or subject.only_reader(join.name) is None or not subject.crossable(join.typed):
            continue
        computed = (expression for _, expression in join.typed.compute)
        if subject.may_move((upper.typed.where, *wheres(join.typed), *computed)):
            yield from _moved(subject, upper, join)


def _moved(subject: Subject, upper: Select, lower: AnyJoin) -> Iterator[Rewrite]:
    name, (below, join, found) = upper.name, lower
    parts: dict[str, list[Expression]] = {LEFT: [], RIGHT: [], _PAIRS: [], _ABOVE: []}
    for part in conjuncts(upper.typed.where):
        target, moved = _target(subject, part, lower)
        parts[target].append(moved)
    kept = parts.pop(_ABOVE)
    both = parts.pop(_PAIRS)
    if not (parts[LEFT] or parts[RIGHT] or both):
        return
    draft = Draft(subject.plan)
    if kept:
        text = text_of(conjunction(kept), subject.columns(name))
        if text is None:
            return
        draft.put(name, select(below, text))
    else:
        draft.drop(name)
        draft.reconnect(name, below)
    changed = put_below(subject, draft, join, parts, name)
    if changed is not None and both:
        changed = with_where(subject, below, changed, (*wheres(found), *both))
    if changed is not None:
        draft.put(below, changed)
        if not kept and not both and len([side for side in parts.values() if side]) == 1:
            # The predicate is the same as before, so that the hints still apply, except for the size.
            draft.put(name, draft.nodes[name].model_copy(update={"hints": unsized(upper.node.hints)}))
        counts = [(parts[LEFT], "left input"), (parts[RIGHT], "right input"), (both, "condition")]
        targets = ", ".join(f"{len(moved)} into its {where}" for moved, where in counts if moved)
        yield Rewrite(draft, name, f"moved into the join {below}: {targets}")


def _target(subject: Subject, part: Expression, join: AnyJoin) -> tuple[str, Expression]:
    """Return the target of a conjunct and its form there."""
    compute = dict(join.typed.compute)
    read = set(references(part))
    if not read <= set(compute) or any(can_fail(compute[column]) for column in read):
        return _ABOVE, part
    moved = substituted(part, compute)
    if moved is None:
        return _ABOVE, part
    sides = sides_of(moved)
    if sides == {LEFT} or (sides == {RIGHT} and not subject.is_table(join.node.right)):
        return next(iter(sides)), moved
    if sides and join.node.how == "inner":
        return _PAIRS, moved
    return _ABOVE, part


RULE = RewriteRule(
    "select below join",
    "Moves conjuncts of a select below the side of a join that they read, or into its condition; not past a "
    "window by rows, and not to the nullable side of a left join.",
    rewrites,
)
