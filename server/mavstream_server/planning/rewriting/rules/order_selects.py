"""Order selects: the one that sorts out most for its cost comes first."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_protocol.plan import SelectNode
from mavstream_protocol.typed_plan import TypedSelect
from mavstream_server.planning.rewriting.editing import Draft, select
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Put each row of selects into the order of rank, (selectivity - 1) / cost, lowest first.

    That order is the cheapest one if the predicates are independent (Hellerstein and Stonebraker, 1993).
    Every select of the row but the last must be read by the next one alone; with `on_error: fail` none
    may be able to fail, for it would see other rows.
    """
    for top in subject.order:
        row = row_of_selects(subject, top)
        if len(row) < 2:
            continue
        wheres = [typed.where for name in row if isinstance(typed := subject.typed_node(name), TypedSelect)]
        ranked = sorted(row, key=subject.rank)  # stable: equal ranks keep the order of the plan
        if ranked == row or not subject.may_move(wheres):
            continue
        draft, below = Draft(subject.plan), _select(subject, row[0]).input
        draft.reconnect(top, ranked[-1], but=row)
        for name in ranked:
            draft.put(name, select(below, _select(subject, name).where))
            below = name
        yield Rewrite(draft, top, f"{' before '.join(ranked)} by rank")


def row_of_selects(subject: Subject, top: str) -> list[str]:
    """Return the selects that stand directly below each other, bottom-up, if `top` is the last of them."""
    if not isinstance(subject.plan.nodes[top], SelectNode):
        return []
    reader = subject.only_reader(top)
    if reader is not None and isinstance(subject.plan.nodes[reader], SelectNode):
        return []
    row = [top]
    while True:
        below = subject.below(row[0])
        if not isinstance(subject.plan.nodes[below], SelectNode) or subject.only_reader(below) is None:
            return row
        row.insert(0, below)


def _select(subject: Subject, name: str) -> SelectNode:
    node = subject.plan.nodes[name]
    assert isinstance(node, SelectNode)
    return node


RULE = RewriteRule(
    "order selects",
    "Selects directly below each other are asked by rank; with `on_error: fail` only if none can fail.",
    rewrites,
)
