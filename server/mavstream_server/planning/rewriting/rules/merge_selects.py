"""Merge selects: merges two consecutive selects into one."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_server.planning.rewriting.editing import Draft, select
from mavstream_server.planning.rewriting.expressions import conjunction, conjuncts
from mavstream_server.planning.rewriting.matching import every, select_at
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject
from mavstream_server.planning.rewriting.texts import text_of


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Evaluate both conditions in one select; the upper select must be the only reader of the lower one.

    The answer is the same, since a row passes if all conjuncts are true. It is cheaper if the lower select
    filters out hardly any rows. With `on_error: fail` neither may be able to fail.
    """
    for name, _, upper in every(subject, select_at):
        found = select_at(subject, subject.below(name))
        if found is None:
            continue
        below, inner, lower = found
        if subject.only_reader(below) is None or not subject.may_move((upper.where, lower.where)):
            continue
        both = conjunction((*conjuncts(lower.where), *conjuncts(upper.where)))
        text = text_of(both, subject.columns(name))
        if text is not None:
            draft = Draft(subject.plan)
            draft.drop(below)
            draft.put(name, select(inner.input, text))
            yield Rewrite(draft, name, f"includes the condition of {below}")


RULE = RewriteRule(
    "merge selects",
    "Merges consecutive selects into one; with `on_error: fail` only if neither can fail.",
    rewrites,
)
