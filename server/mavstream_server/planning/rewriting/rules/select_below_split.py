"""Select below split: sort rows out before they are told apart."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_protocol.plan import InputRef, SelectNode, SplitNode
from mavstream_protocol.typed_plan import TypedSelect, TypedSplit
from mavstream_server.planning.rewriting.editing import Draft, select, with_inputs
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Move what is asked of every output of a split below the split.

    Everyone who reads the split must be a select with the same predicate, so that no row which it sorts
    out is missed. Only the count of rows that went to no output changes. With `on_error: fail`
    neither the predicate nor those of the split may be able to fail.
    """
    for name in subject.order:
        split, typed = subject.plan.nodes[name], subject.typed_node(name)
        if not isinstance(split, SplitNode) or not isinstance(typed, TypedSplit):
            continue
        above = subject.readers(name)
        selects = [subject.typed_node(reader) for reader in above]
        if not above or InputRef.parse(subject.plan.root).node == name:
            continue
        wheres = [found.where for found in selects if isinstance(found, TypedSelect)]
        if len(wheres) < len(selects) or any(where != wheres[0] for where in wheres):
            continue
        if not subject.may_move((wheres[0], *(where for _, where in typed.outputs))):
            continue
        draft = Draft(subject.plan)
        nodes = [(reader, node) for reader in above if isinstance(node := draft.nodes[reader], SelectNode)]
        for reader, node in nodes:
            draft.drop(reader)
            draft.reconnect(reader, node.input)
        kept, moved = nodes[0]
        draft.put(kept, select(split.input, moved.where))
        draft.put(name, with_inputs(split, {split.input: kept}))
        yield Rewrite(draft, kept, f"moved below the split {name}")


RULE = RewriteRule(
    "select below split",
    "What is asked of every output of a split that is read is asked below the split.",
    rewrites,
)
