"""Read-only view of operators, queries and classes on which policies decide.

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
    """Role of an operator in a query."""

    SOURCE = "source"
    """Reads tuples from a stream; run by the driver, or by policies where sources are served `per_class`."""
    OPERATIONAL = "operational"
    OUTPUT = "output"
    """Writes answers to the result log; in a shared pipeline, hands rows to the members."""


class OperatorView(Protocol):
    """An operator as seen by policies; views are compared by identity (`is`)."""

    @property
    def number(self) -> int:
        """Sequence number in order of admission, used to break ties."""

    @property
    def kind(self) -> OperatorKind:
        """Source, operational or output."""

    @property
    def operator(self) -> str:
        """Kind of the operator: `select`, `join`, ..."""

    @property
    def leaf(self) -> bool:
        """Whether it reads from a source."""

    @property
    def query(self) -> QueryView:
        """The query it belongs to; for a shared operator, a query of the highest class that uses it."""

    @property
    def downstream(self) -> Sequence[OperatorView]:
        """Operators that read its output; empty for an output, except that of a shared pipeline."""

    @property
    def ready(self) -> bool:
        """Whether anything waits at its inputs: tuples, or a watermark that must be passed on."""

    @property
    def queued(self) -> int:
        """Tuples waiting at its inputs."""

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting at its inputs."""

    @property
    def oldest(self) -> int | None:
        """Arrival time (ns) of the oldest waiting tuple, or None."""

    @property
    def progress(self) -> int:
        """Nanoseconds of work already done on the head of its queue before it was preempted."""

    @property
    def statistics(self) -> Statistics:
        """Cost, selectivity and size as last published."""


class QueryView(Protocol):
    """A query as seen by policies."""

    @property
    def id(self) -> str:
        """Unique among running queries."""

    @property
    def class_name(self) -> str:
        """The class it belongs to; may change while it runs."""

    @property
    def weight(self) -> int:
        """Its share of the class relative to a query of weight 1; may change while it runs."""

    @property
    def latency_target(self) -> int | None:
        """Its effective latency target (ns): its own, else that of its class, else None; may change.

        That of a shared pipeline is the smallest of its members'.
        """

    @property
    def operators(self) -> Sequence[OperatorView]:
        """Bottom-up: each operator after those that feed it. Includes sources only if policies run them."""

    @property
    def paths(self) -> Sequence[Sequence[OperatorView]]:
        """Operator paths, leaf to root, one per source. Include sources only if policies run them."""

    @property
    def units(self) -> QueryUnits:
        """Values derived from its statistics; kept by the driver, whichever policy is active."""


class View(Protocol):
    """Everything that a policy may read."""

    @property
    def queries(self) -> Mapping[str, QueryView]:
        """The admitted queries by id."""

    @property
    def priorities(self) -> Mapping[str, int]:
        """Priority by class name; larger is more important."""

    @property
    def random(self) -> Random:
        """The only source of randomness that a policy may use; seeded by the driver."""


class Slice(NamedTuple):
    """A decision: run these operators in this order, each until a bound is reached or its queue is empty."""

    operators: tuple[OperatorView, ...]
    tuples: int | None = None
    """At most this many tuples per operator."""
    duration: int | None = None
    """At most about this many nanoseconds in total; checked between batches."""

    @property
    def ready(self) -> bool:
        """Whether any of the operators is ready."""
        for operator in self.operators:  # noqa: SIM110 (twice as fast as any(), and called for every slice)
            if operator.ready:
                return True
        return False


class Report(NamedTuple):
    """Outcome of a slice."""

    consumed: int
    produced: int
    elapsed: int
    """Nanoseconds."""
    answers: int = 0
    """Tuples written by an output."""
    response: int = 0
    """Sum of the response times of these answers, in nanoseconds."""
