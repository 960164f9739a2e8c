"""Rewrite rules: transformations of plans that do not change the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mavstream_protocol.plans.plan import Plan
from mavstream_server.planning.rewriting.editing import Draft
from mavstream_server.planning.rewriting.subject import Subject


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One application of a rule: the new plan, the node that it was applied to, and a description."""

    draft: Draft
    node: str
    description: str

    @property
    def plan(self) -> Plan:
        """The new plan; raises InvalidPlan if a limit was exceeded, such as the number of nodes."""
        return self.draft.plan()


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """A named rewrite rule.

    `rewrites` yields every single application of the rule to a plan, bottom-up, where its preconditions
    hold. The search checks the types and the columns of the answer once more.
    """

    name: str
    about: str
    """A sentence for users: what the rule does, and when it applies."""
    rewrites: Callable[[Subject], Iterator[Rewrite]]


@dataclass(frozen=True, slots=True)
class RewriteStep:
    """A rule that was applied to derive an alternate."""

    rule: str
    node: str
    description: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.node}: {self.description}"
