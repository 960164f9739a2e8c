"""Select below split: filters rows before they are split."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_protocol.plans.plan import InputRef
from mavstream_server.planning.rewriting.editing import Draft, moved_select
from mavstream_server.planning.rewriting.matching import every, select_at, split_at
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Move a predicate that is applied to every output of a split below the split.

    All readers of the split must be selects with the same predicate, so that no row that it filters out is
    needed. Only the count of rows that went to no output changes. With `on_error: fail` neither the predicate
    nor those of the split may be able to fail.
    """
    for name, split, typed in every(subject, split_at):
        above = subject.readers(name)
        selects = [found for reader in above if (found := select_at(subject, reader)) is not None]
        if not above or InputRef.parse(subject.plan.root).node == name:
            continue
        if len(selects) < len(above) or any(found.typed.where != selects[0].typed.where for found in selects):
            continue
        if not subject.may_move((selects[0].typed.where, *(where for _, where in typed.outputs))):
            continue
        draft = Draft(subject.plan)
        inputs = {found.name: found.node.input for found in selects}
        for reader, input_ in inputs.items():
            draft.drop(reader)
            draft.reconnect(reader, input_)
        kept, moved, _ = selects[0]
        draft.put(kept, moved_select(moved, split.input))
        draft.put(name, split.reading({split.input: kept}))
        yield Rewrite(draft, kept, f"moved below the split {name}")


RULE = RewriteRule(
    "select below split",
    "Moves a condition that all readers of a split have in common below the split.",
    rewrites,
)
