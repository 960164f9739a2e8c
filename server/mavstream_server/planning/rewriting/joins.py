"""Helpers for joins in rewritten plans: the sides that expressions read, and selects below a side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from mavstream_protocol.expressions.typed import Expression, references
from mavstream_protocol.plans.plan import JoinNode
from mavstream_protocol.typed_plan import TypedJoin, TypedTableJoin
from mavstream_server.planning.rewriting.editing import Draft, select
from mavstream_server.planning.rewriting.expressions import conjunction, conjuncts, renamed
from mavstream_server.planning.rewriting.subject import Subject
from mavstream_server.planning.rewriting.texts import text_of

LEFT, RIGHT = "left", "right"
_PREFIXES = {LEFT: "l.", RIGHT: "r."}


def sides_of(expression: Expression) -> frozenset[str]:
    """Return the sides of a join that an expression reads."""
    names = set(references(expression))
    return frozenset(s for s, prefix in _PREFIXES.items() if any(n.startswith(prefix) for n in names))


def wheres(join: TypedJoin | TypedTableJoin) -> tuple[Expression, ...]:
    """Return the conjuncts of a join's condition, without its keys."""
    return () if join.where is None else conjuncts(join.where)


def put_below(
    subject: Subject, draft: Draft, join: JoinNode, parts: Mapping[str, Sequence[Expression]], like: str
) -> JoinNode | None:
    """Add selects with these parts, each of which reads only one side, below the sides of a join.

    Returns the join that reads them, or None if a part cannot be written as text. New nodes get the name
    `like`, or one derived from it.
    """
    changed: dict[str, str] = {}
    for side, conditions in parts.items():
        if not conditions:
            continue
        prefix, below = _PREFIXES[side], str(getattr(join, side))
        where = renamed(conjunction(conditions), partial(_without, prefix))
        text = text_of(where, {field.name: field for field in subject.schema(below)})
        if text is None:
            return None
        changed[side] = draft.fresh(like) if like in draft.nodes else like
        draft.put(changed[side], select(below, text))
    return join.model_copy(update=changed)


def _without(prefix: str, name: str) -> str:
    return name.removeprefix(prefix)


def with_where(subject: Subject, name: str, join: JoinNode, parts: Sequence[Expression]) -> JoinNode | None:
    """Return the join with these parts as its condition; None if they cannot be written as text."""
    if not parts:
        return join.model_copy(update={"where": None, "hints": None})
    text = text_of(conjunction(parts), subject.columns(name))
    return None if text is None else join.model_copy(update={"where": text, "hints": None})
