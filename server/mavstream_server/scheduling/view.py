"""What a policy sees: operators, queries and classes, to be read and not to be touched.

The live engine and the simulator offer the same view of very different operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mavstream_server.scheduling.statistics import Statistics

if TYPE_CHECKING:
    from mavstream_server.scheduling.mechanisms.units import QueryUnits


class OperatorKind(StrEnum):
    """What part an operator plays in a query."""

    SOURCE = "source"
    """Brings tuples in; served by the driver, unless sources are served `per_class`: then by policies."""
    OPERATIONAL = "operational"
    OUTPUT = "output"
    """Hands answers to their log."""


class OperatorView(Protocol):
    """An operator as policies see it. Identity is the object: views are compared with `is`."""

    @property
    def number(self) -> int:
        """Running number in order of admission: breaks ties."""

    @property
    def kind(self) -> OperatorKind:
        """Source, operational or output."""

    @property
    def operator(self) -> str:
        """What it does: `select`, `join`, ..."""

    @property
    def leaf(self) -> bool:
        """Whether it reads from a source."""

    @property
    def query(self) -> QueryView:
        """The query it belongs to; of a shared one, a query of the highest class that uses it."""

    @property
    def downstream(self) -> Sequence[OperatorView]:
        """Those that read its output; empty for an output."""

    @property
    def ready(self) -> bool:
        """Whether anything waits at its inputs: tuples, or a mark that must be passed on."""

    @property
    def queued(self) -> int:
        """Tuples waiting at its inputs."""

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting at its inputs."""

    @property
    def oldest(self) -> int | None:
        """Arrival time (ns) of the oldest tuple waiting, or None."""

    @property
    def progress(self) -> int:
        """Nanoseconds of work already done on what is at the head of its queue, and cut off there."""

    @property
    def statistics(self) -> Statistics:
        """Cost, selectivity and size as last published."""


class QueryView(Protocol):
    """A query as policies see it."""

    @property
    def id(self) -> str:
        """Unique among running queries."""

    @property
    def class_name(self) -> str:
        """The class it belongs to; may change while it runs."""

    @property
    def weight(self) -> int:
        """How much of its class it is to have against one that weighs 1; may change while it runs."""

    @property
    def operators(self) -> Sequence[OperatorView]:
        """Bottom-up: each behind the ones that feed it. Sources only where policies serve them."""

    @property
    def paths(self) -> Sequence[Sequence[OperatorView]]:
        """Operator paths, leaf to root, one per source. Sources only where policies serve them."""

    @property
    def units(self) -> QueryUnits:
        """What is worked out from its statistics; the driver keeps it, whoever decides."""


class View(Protocol):
    """Everything a policy may know."""

    @property
    def queries(self) -> Mapping[str, QueryView]:
        """The admitted queries by id."""

    @property
    def priorities(self) -> Mapping[str, int]:
        """Priority by class name; larger is more important."""

    @property
    def random(self) -> Random:
        """The only randomness a policy may use: seeded by the driver."""


class Slice(NamedTuple):
    """A decision: run these operators, in this order, each until a bound is met or nothing waits."""

    operators: tuple[OperatorView, ...]
    tuples: int | None = None
    """At most this many tuples per operator."""
    duration: int | None = None
    """At most about this many nanoseconds in all; looked at between two batches."""

    @property
    def ready(self) -> bool:
        """Whether any of the operators is ready."""
        for operator in self.operators:  # noqa: SIM110 (twice as quick as any, and called for every slice)
            if operator.ready:
                return True
        return False


class Report(NamedTuple):
    """What became of a slice."""

    consumed: int
    produced: int
    elapsed: int
    """Nanoseconds."""
    answers: int = 0
    """Tuples that left an output,"""
    response: int = 0
    """and the sum of their response times in nanoseconds."""
