"""The interface between policies, which decide, and drivers, which run operators.

Rules that every policy obeys, each checked by the contract suite:
1. A policy is pure: it never sleeps, reads a clock, does I/O or draws randomness other than the view's.
2. It is work conserving: while an operator that was reported to it is ready, `next` returns a slice.
3. A slice names operators of admitted queries only; after `retire`, none of that query's.
4. The same calls in the same order give the same decisions.
5. `next` and `finished` cost O(log n) in the number of operators; nothing scans all queues.
6. It can take over while tuples are in flight: the driver calls `admit` for every query, then `arrived` for
   every ready operator.
7. Operators of a slice are claimed from `next` to `finished`: no other core gets them in between.

What the driver promises:
- `arrived` is called when an operator that had nothing to do has something, but not for operators of a
  running slice: `finished` must check whether those are ready again.
- `retire` may be called while a slice of the query is running (the query has failed); `finished` follows,
  and none of the operators is ready then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from mavstream_protocol.scheduling import SourceService as SourceService
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View

LONGEST_WAIT = 50_000_000
"""The longest time (ns) for which a source waits for more rows."""


class PolicyOptions(BaseModel):
    """Base of the options models: frozen, and unknown options are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")


OptionsT = TypeVar("OptionsT", bound=PolicyOptions)


class Level(StrEnum):
    """What a policy decides on."""

    OPERATOR = "operator"
    """Operators, paths or segments, regardless of class; can be an inner policy."""
    CLASS = "class"
    """Classes, with an inner policy for the operators of each class."""
    QUERY = "query"
    """Whole queries on one or several cores."""
    META = "meta"
    """Which other policy decides."""


class UnitKind(StrEnum):
    """What a policy runs in one turn. Batches are handed over directly between the operators of a unit."""

    OPERATOR = "operator"
    """Single operators, with a queue in front of each."""
    SEGMENT = "segment"
    """Runs of operators that free memory together."""
    PATH = "path"
    """All operators from one to the output."""
    QUERY = "query"
    """All operators of a query."""


class Policy(ABC, Generic[OptionsT]):
    """A scheduling policy: decides what to run next and is informed of the outcome."""

    name: ClassVar[str]
    """The public name, equal to the module's."""
    optimises: ClassVar[str]
    """What the policy optimises, in a few words."""
    level: ClassVar[Level] = Level.OPERATOR
    fair: ClassVar[bool] = True
    """Whether every operator gets a turn, however much arrives for others (no starvation)."""
    sources: ClassVar[SourceService] = SourceService.BETWEEN_SLICES
    """How the policy's paper serves sources; the driver does the same unless configured otherwise."""
    weighs: ClassVar[bool] = False
    """Whether queries of higher weight get more; a class-level policy leaves that to its inner policy."""
    watches_growth: bool = False
    """Whether the driver must call `grew`, which costs a call per batch."""
    unit: UnitKind = UnitKind.OPERATOR
    """What it runs in one turn; an option may decide it."""
    Options: ClassVar[type[PolicyOptions]]

    def __init__(self, view: View, options: OptionsT) -> None:
        self.view = view
        self.options = options

    def admit(self, query: QueryView) -> None:
        """Add a query, or again after a change of class, plan, weight or target (it was retired before)."""

    @abstractmethod
    def retire(self, query: QueryView) -> None:
        """Remove a query and its operators."""

    @abstractmethod
    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Note that an operator that had nothing to do has something; True asks for an immediate decision."""

    def grew(self, operator: OperatorView, now: int) -> None:
        """Note that the queue of a ready operator that is not running has grown."""

    @abstractmethod
    def next(self, core: int, now: int) -> Slice | None:
        """Return what this core should run, or None if nothing is ready."""

    @abstractmethod
    def finished(self, slice_: Slice, report: Report) -> None:
        """Note that a slice has been run; `ready` of its operators says whether they have more to do."""

    def hands_over(self, lower: OperatorView, upper: OperatorView) -> bool:
        """Return whether `upper` may process what `lower` emits at once, as part of the same turn.

        Asked about neighbours of one query, after it was admitted or refreshed. The live engine then leaves
        out the queue between them (fusing), so that nothing ever waits at `upper`.
        """
        return self.unit is UnitKind.QUERY

    def may_wait(self, source: OperatorView) -> int:
        """Return how long (ns) a source without a latency target may wait for more rows; 0 for not at all.

        Asked when rows have arrived for it. Larger batches cost less per row. So a source may wait whose
        class could not run now anyway, or that would take the engine from a class that is behind.
        """
        return 0

    @property
    def decider(self) -> Policy[Any]:
        """The policy that decides at present: this one, except where it chooses between others."""
        return self

    def refreshed(self, query: QueryView) -> None:
        """Note that statistics of a query changed by more than 10 % and its units were recomputed."""

    def reprioritised(self) -> None:
        """Note that priorities or latency targets of classes changed, or classes were added or removed."""

    def adopt(self, options: OptionsT) -> bool:
        """Continue with other options and keep the learned state; False if a new policy must be made."""
        return False
