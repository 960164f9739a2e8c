"""Matching: finds the nodes of a certain kind for rules, in their written and their typed form.

Rules that match shapes of plans depend on certain operators, and find them with this module only. Properties
that all nodes have are attributes of the nodes themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from mavstream_protocol.plans.plan import (
    AggregateNode,
    JoinNode,
    PlanNode,
    ProjectNode,
    SelectNode,
    SplitNode,
    UnionNode,
)
from mavstream_protocol.typed_plan import (
    TypedAggregate,
    TypedJoin,
    TypedNode,
    TypedProject,
    TypedSelect,
    TypedSplit,
    TypedTableJoin,
    TypedUnion,
)
from mavstream_server.planning.rewriting.subject import Subject

W = TypeVar("W", bound=PlanNode)
T = TypeVar("T", bound=TypedNode)


class Match(NamedTuple, Generic[W, T]):
    """A node of a plan in its written and its typed form."""

    name: str
    node: W
    """The node as it is written in the plan."""
    typed: T


Select = Match[SelectNode, TypedSelect]
Project = Match[ProjectNode, TypedProject]
Split = Match[SplitNode, TypedSplit]
Union = Match[UnionNode, TypedUnion]
Aggregate = Match[AggregateNode, TypedAggregate]
Join = Match[JoinNode, TypedJoin]
TableJoin = Match[JoinNode, TypedTableJoin]
AnyJoin = Match[JoinNode, TypedJoin | TypedTableJoin]


def select_at(subject: Subject, name: str) -> Select | None:
    """Return the node of that name if it is a select."""
    return _at(subject, name, SelectNode, TypedSelect)


def project_at(subject: Subject, name: str) -> Project | None:
    """Return the node of that name if it is a project."""
    return _at(subject, name, ProjectNode, TypedProject)


def split_at(subject: Subject, name: str) -> Split | None:
    """Return the node of that name if it is a split."""
    return _at(subject, name, SplitNode, TypedSplit)


def union_at(subject: Subject, name: str) -> Union | None:
    """Return the node of that name if it is a union."""
    return _at(subject, name, UnionNode, TypedUnion)


def aggregate_at(subject: Subject, name: str) -> Aggregate | None:
    """Return the node of that name if it is an aggregate."""
    return _at(subject, name, AggregateNode, TypedAggregate)


def join_at(subject: Subject, name: str) -> Join | None:
    """Return the node of that name if it is a join of two streams."""
    return _at(subject, name, JoinNode, TypedJoin)


def table_join_at(subject: Subject, name: str) -> TableJoin | None:
    """Return the node of that name if it is a join with a stored table."""
    return _at(subject, name, JoinNode, TypedTableJoin)


def any_join_at(subject: Subject, name: str) -> AnyJoin | None:
    """Return the node of that name if it is a join, with a stream or a table."""
    found = join_at(subject, name) or table_join_at(subject, name)
    return None if found is None else Match(found.name, found.node, found.typed)


M = TypeVar("M")


def every(subject: Subject, at: Callable[[Subject, str], M | None]) -> Iterator[M]:
    """Yield all nodes that `at` matches, bottom-up."""
    for name in subject.order:
        found = at(subject, name)
        if found is not None:
            yield found


def _at(subject: Subject, name: str, written: type[W], typed: type[T]) -> Match[W, T] | None:
    node, found = subject.plan.nodes[name], subject.typed_node(name)
    return Match(name, node, found) if isinstance(node, written) and isinstance(found, typed) else None
