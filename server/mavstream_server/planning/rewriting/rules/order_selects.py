"""Order selects: evaluates the select that filters out most rows for its cost first."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_server.planning.rewriting.editing import Draft
from mavstream_server.planning.rewriting.matching import Select, every, select_at
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Order consecutive selects by rank, (selectivity - 1) / cost, lowest first.

    That order is the cheapest one if the predicates are independent (Hellerstein and Stonebraker, 1993).
    Each select must be the only reader of the one below it; with `on_error: fail` none may be able to fail,
    since they are evaluated for other rows.
    """
    for top in every(subject, select_at):
        row = {found.name: found for found in row_of_selects(subject, top)}
        if len(row) < 2:
            continue
        ranked = sorted(row, key=subject.rank)  # stable: selects of equal rank stay in the order of the plan
        if ranked == list(row) or not subject.may_move(found.typed.where for found in row.values()):
            continue
        draft, below = Draft(subject.plan), next(iter(row.values())).node.input
        draft.reconnect(top.name, ranked[-1], but=row)
        for name in ranked:
            draft.put(name, row[name].node.model_copy(update={"input": below}))
            below = name
        yield Rewrite(draft, top.name, f"ordered by rank: {', '.join(ranked)}")


def row_of_selects(subject: Subject, top: Select) -> list[Select]:
    """Return the consecutive selects that end with `top`, bottom-up; none if `top` is not the last one."""
    reader = subject.only_reader(top.name)
    if reader is not None and select_at(subject, reader) is not None:
        return []
    row = [top]
    while True:
        below = select_at(subject, subject.below(row[0].name))
        if below is None or subject.only_reader(below.name) is None:
            return row
        row.insert(0, below)


RULE = RewriteRule(
    "order selects",
    "Orders consecutive selects by rank; with `on_error: fail` only if none can fail.",
    rewrites,
)
