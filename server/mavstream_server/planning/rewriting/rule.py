"""Rules: what a plan may be turned into without changing its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mavstream_protocol.plan import Plan
from mavstream_server.planning.rewriting.editing import Draft
from mavstream_server.planning.rewriting.subject import Subject


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One application of a rule: the new plan, at which node, and what was done there."""

    draft: Draft
    node: str
    told: str

    @property
    def plan(self) -> Plan:
        """The new plan; raises InvalidPlan if a limit was passed, such as the number of nodes."""
        return self.draft.plan()


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """A named rule.

    `rewrites` yields every single application of the rule to a plan, bottom-up. It yields only where its
    preconditions hold; the search checks types and the answer's columns once more.
    """

    name: str
    about: str
    """What it does and when it may, in a sentence for people."""
    rewrites: Callable[[Subject], Iterator[Rewrite]]


@dataclass(frozen=True, slots=True)
class RewriteStep:
    """A rule that was applied on the way to an alternate."""

    rule: str
    node: str
    told: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.node}: {self.told}"
