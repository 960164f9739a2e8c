"""Split select: turns a select with a conjunction into one select per conjunct."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_server.planning.rewriting.editing import Draft, select
from mavstream_server.planning.rewriting.expressions import conjuncts
from mavstream_server.planning.rewriting.matching import every, select_at
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject
from mavstream_server.planning.rewriting.texts import text_of


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Split each conjunction into all of its conjuncts at once.

    A row passes a conjunction if every conjunct is true for it: a select treats null like false. With
    `on_error: fail` no conjunct may be able to fail, since AND ignores a failure in rows that another
    conjunct decides, and a select of its own does not.
    """
    for name, node, typed in every(subject, select_at):
        parts = conjuncts(typed.where)
        if len(parts) < 2 or not subject.may_move(parts):
            continue
        texts = [text_of(part, subject.columns(name)) for part in parts]
        draft, below = Draft(subject.plan), node.input
        for text in texts[:-1]:
            if text is None:
                break
            lower = draft.fresh(name)
            draft.put(lower, select(below, text))
            below = lower
        if None not in texts:
            draft.put(name, select(below, str(texts[-1])))
            yield Rewrite(draft, name, f"split into {len(parts)} consecutive selects")


RULE = RewriteRule(
    "split select",
    "Splits a conjunction into consecutive selects; with `on_error: fail` only if no conjunct can fail.",
    rewrites,
)
