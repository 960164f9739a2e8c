"""Drop columns: removes computed columns that are not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mavstream_protocol.plans.scaling import ERROR
from mavstream_server.planning.rewriting.editing import Draft, unsized
from mavstream_server.planning.rewriting.matching import aggregate_at, any_join_at, project_at
from mavstream_server.planning.rewriting.reading import columns_read
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject
from mavstream_server.planning.rewriting.texts import text_of

# An overflow of other aggregates fails the query regardless of `on_error`, so they are always computed.
_NEVER_OVERFLOW = frozenset(("count", "min", "max", "first", "last"))


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Remove computed columns that are not read above, in the whole plan at once.

    The engine does not carry unread columns, and does not compute them in a project or a join with a table.
    But a join of streams and an aggregate compute all of their columns, and store what these read.

    - The columns of the answer stay, and those of the inputs of a union or an except, which must match.
    - Columns of joins of streams and of aggregates stay if any column of the plan can fail, unless failures
      are mere nulls: the columns that they read may be the ones that fail.
    - A scaled column stays if its error is read.
    - Sums and aggregates based on sums stay: an overflow in them fails the query.
    """
    read = columns_read(subject.typed)
    draft = Draft(subject.plan)
    changed: list[str] = []
    for name in subject.order:
        texts = _texts(subject, name)
        if texts is None:
            continue
        aggregate = aggregate_at(subject, name)
        scaled = aggregate is not None and aggregate.typed.scaled
        used = {column.removesuffix(ERROR) for column in read[name]} if scaled else set()
        kept = {
            c: text
            for c, text in texts.items()
            if c in read[name] or c in used or not _droppable(subject, name, c)
        }
        kept = kept or dict([next(iter(texts.items()))])  # a plan cannot express rows without columns
        if len(kept) < len(texts):
            fewer = {"compute": kept, "hints": unsized(subject.typed_node(name).hints)}
            draft.put(name, subject.plan.nodes[name].model_copy(update=fewer))
            changed.append(name)
    if changed:
        yield Rewrite(draft, changed[0], f"unread columns removed from {', '.join(changed)}")


def _texts(subject: Subject, name: str) -> Mapping[str, str] | None:
    """Return the columns that a node computes, as text; None if it computes none."""
    computing = project_at(subject, name) or aggregate_at(subject, name)
    if computing is not None:
        return computing.node.compute
    join = any_join_at(subject, name)
    if join is None:
        return None
    if join.node.compute is not None:
        return join.node.compute
    columns = subject.columns(name)
    texts = {column: text_of(expression, columns) for column, expression in join.typed.compute}
    return {column: text for column, text in texts.items() if text is not None}


def _droppable(subject: Subject, name: str, column: str) -> bool:
    if subject.typed_node(name).computes_on_demand:
        return True
    aggregate = aggregate_at(subject, name)
    calls = () if aggregate is None else dict(aggregate.typed.compute)[column].calls
    return subject.may_drop_columns and all(call.function in _NEVER_OVERFLOW for call in calls)


RULE = RewriteRule(
    "drop columns",
    "Removes computed columns that are not read, unless their failure affects the answer.",
    rewrites,
)
