"""Merge projects: merges a project into the project or join that it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mavstream_protocol.expressions.typed import ColumnRef, Expression, references
from mavstream_server.planning.rewriting.editing import Draft, unsized
from mavstream_server.planning.rewriting.expressions import can_fail, size, substituted
from mavstream_server.planning.rewriting.matching import any_join_at, every, project_at
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject
from mavstream_server.planning.rewriting.texts import text_of

_Compute = tuple[tuple[str, Expression], ...]


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Merge a project into the project or join that it reads.

    - The project must be the only reader of the lower node, which must not be windowed, since windows add
      columns.
    - A column that can fail may only be used as it is: inside a larger expression its failure would make the
      whole expression null.
    - A column that is not a plain column or constant may be used only once: merged, it is computed at every
      use.
    - A join of streams computes all of its columns and reads what they read, so no column in the plan may be
      able to fail, unless failures are mere nulls.
    """
    for name, _, upper in every(subject, project_at):
        below = subject.below(name)
        found = project_at(subject, below) or any_join_at(subject, below)
        if found is None or subject.only_reader(below) is None or found.typed.windowed:
            continue
        _, inner, lower = found
        if not lower.computes_on_demand and not subject.may_drop_columns:
            continue
        texts = _merged(subject, upper.compute, lower.compute, below)
        if texts is not None:
            draft = Draft(subject.plan)
            draft.drop(name)
            draft.put(below, inner.model_copy(update={"compute": texts, "hints": unsized(inner.hints)}))
            draft.reconnect(name, below)
            yield Rewrite(draft, name, f"merged into {below}")


def _merged(subject: Subject, upper: _Compute, lower: _Compute, below: str) -> dict[str, str] | None:
    """Return the upper columns as text, in terms of the columns that the lower node reads, or None."""
    inner = dict(lower)
    uses = Counter(name for _, expression in upper for name in references(expression))
    if any(count > 1 and size(inner[name]) > 1 for name, count in uses.items()):
        return None
    texts: dict[str, str] = {}
    for column, expression in upper:
        nested = not isinstance(expression, ColumnRef)
        if nested and any(can_fail(inner[name]) for name in references(expression)):
            return None
        whole = substituted(expression, inner)
        text = None if whole is None else text_of(whole, subject.columns(below))
        if text is None:
            return None
        texts[column] = text
    return texts


RULE = RewriteRule(
    "merge projects",
    "Merges a project into the project, or the join without a window, that it reads.",
    rewrites,
)
