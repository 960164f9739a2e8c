"""The seam between deciding and doing: what every scheduling policy must obey.

Rules, each checked by the contract suite:
1. A policy is pure: it never sleeps, reads a clock, does I/O or draws randomness other than the view's.
2. It is work conserving: while an operator that it was told of is ready, `next` returns a slice.
3. A slice names operators of admitted queries only; after `retire`, none of that query's.
4. The same calls in the same order give the same decisions.
5. `next` and `finished` cost O(log n) in the number of operators; nothing scans all queues.
6. It can take over while tuples are in flight: told by `admit` of every query, then by `arrived` of every
   ready operator.
7. Operators of a slice are taken from `next` to `finished`: no other core gets them meanwhile.

What the driver promises:
- `arrived` comes when an operator that had nothing to do has something, but not for operators of a slice
  that is being run: whether those are ready again, `finished` must look.
- `retire` may come while a slice of the query is being run (it has failed); `finished` follows, and none of
  the operators is ready then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from mavstream_protocol.scheduling import SourceService as SourceService
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View


class PolicyOptions(BaseModel):
    """Base of the options models: frozen, and unknown options are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


OptionsT = TypeVar("OptionsT", bound=PolicyOptions)


class Level(StrEnum):
    """What a policy decides on."""

    OPERATOR = "operator"
    """Operators, paths or segments, whatever their class; can be an inner policy."""
    CLASS = "class"
    """Classes, with an inner policy for what happens inside one."""
    QUERY = "query"
    """Whole queries on one or several cores."""
    META = "meta"
    """Which other policy decides."""


class Policy(ABC, Generic[OptionsT]):
    """A scheduling policy: asked what to run next, told what came of it."""

    name: ClassVar[str]
    """The public name, equal to the module's."""
    optimises: ClassVar[str]
    """What it is good for, in a few words."""
    level: ClassVar[Level] = Level.OPERATOR
    fair: ClassVar[bool] = True
    """Whether nobody starves, however much arrives for others."""
    sources: ClassVar[SourceService] = SourceService.BETWEEN_SLICES
    """How its paper serves sources; the driver does so unless it was told otherwise."""
    weighs: ClassVar[bool] = False
    """Whether queries that weigh more get more; a policy over classes leaves it to the inner one."""
    watches_growth: bool = False
    """Whether `grew` must be called: it costs a call per batch."""
    Options: ClassVar[type[PolicyOptions]]

    def __init__(self, view: View, options: OptionsT) -> None:
        self.view = view
        self.options = options

    def admit(self, query: QueryView) -> None:
        """A query has come, or its class, plan or weight has changed (then it was retired before)."""

    @abstractmethod
    def retire(self, query: QueryView) -> None:
        """A query goes: forget its operators."""

    @abstractmethod
    def arrived(self, operator: OperatorView, now: int) -> bool:
        """An operator that had nothing to do has something. True asks to be consulted at once."""

    def grew(self, operator: OperatorView, now: int) -> None:
        """A ready operator that is not being run has got more to do."""

    @abstractmethod
    def next(self, core: int, now: int) -> Slice | None:
        """Return what this core should run, or None if nothing is ready."""

    @abstractmethod
    def finished(self, slice_: Slice, report: Report) -> None:
        """The slice has been run; its operators are ready again or not, as they say."""

    def refreshed(self, query: QueryView) -> None:
        """Figures of a query have moved by more than a tenth: its units were worked out anew."""

    def reprioritised(self) -> None:
        """Priorities of classes have changed, or classes have come or gone."""

    def adopt(self, options: OptionsT) -> bool:
        """Go on with other options and with all that was learned, if that can be; False: begin anew."""
        return False
