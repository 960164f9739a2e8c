"""Scenarios: what is simulated, written out flat. Times are nanoseconds, rates tuples per second.

A workload file is compact and speaks of families and ranges; from it a scenario is made, in which every
stream, query and operator stands for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SECOND = 1_000_000_000
MICROSECOND = 1_000


class Service(StrEnum):
    """How tuples get from streams into queues: the ways of the live engine, and one more."""

    POLICY = "policy"
    """As the policy's paper has it; `own_core` wherever there are cores for sources."""
    BETWEEN_SLICES = "between_slices"
    WHEN_IDLE = "when_idle"
    PER_CLASS = "per_class"
    OWN_CORE = "own_core"
    DIRECT = "direct"
    """There are no source operators: a tuple is in the queue of the leaf at the moment it arrives."""


class SourceOrder(StrEnum):
    """Which source a core that serves nothing but sources reads next."""

    ROUND_ROBIN = "round_robin"
    BROADCAST_DISK = "broadcast_disk"
    """In slots by the priority of the most important class that reads it (dissertation, 6.3.6)."""


class ArrivalKind(StrEnum):
    """What the times between two tuples are."""

    POISSON = "poisson"
    FIXED = "fixed"
    BURSTY = "bursty"
    """Poisson at two rates by turns."""
    RECORDED = "recorded"


class CostKind(StrEnum):
    """How the cost of a tuple varies around its mean."""

    CONSTANT = "constant"
    EXPONENTIAL = "exponential"


class Accounting(StrEnum):
    """What overheads do."""

    CONSUMED = "consumed"
    """They take time of the core."""
    COUNTED = "counted"
    """They take none; their sum, divided by the tuples that came, is added to the response times."""


class SwitchPoint(StrEnum):
    """When a core pays for a context switch."""

    OPERATORS = "operators"
    """When it turns to another operator than it ran last."""
    QUERIES = "queries"
    """When it turns to another query."""
    SLICES = "slices"
    """Once for every slice."""


class ResponseFrom(StrEnum):
    """Where response times begin."""

    ARRIVAL = "arrival"
    SOURCE_READ = "source_read"
    """When a source operator begins to read the tuple: what came before is not seen (CQC paper)."""


class StatisticsKind(StrEnum):
    """Which statistics policies see."""

    MEASURED = "measured"
    """Published every 200 tuples and smoothed, as in the live engine; until then the true ones."""
    DECLARED = "declared"
    """The true ones, at all times."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Times at a high and at a low rate by turns, beginning with the high one."""

    high_s: float
    low_s: float
    low_rate: float = 0.0
    random: bool = False
    """Whether these lengths are means of exponential ones."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream and what it brings."""

    name: str
    rate: float
    kind: ArrivalKind = ArrivalKind.POISSON
    tuples: int | None = None
    """It ends with so many, or never."""
    rates: tuple[tuple[float, float], ...] = ()
    """(second, rate from then on), in order."""
    burst: Burst | None = None
    offsets: tuple[float, ...] = ()
    """Seconds, for `recorded`."""
    begin_s: float = 0.0
    size: float = 64.0
    """Bytes of a tuple."""


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """An operator and what it costs and gives."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    """Operators of the same query, or streams."""
    cost: float
    """Nanoseconds per tuple,"""
    setup: float = 0.0
    """per call,"""
    per_output: float = 0.0
    """and per tuple that comes out."""
    selectivity: float = 1.0
    random: bool = False
    """Whether tuples pass by chance; otherwise so that fractions add up."""
    size: float = 64.0
    """Bytes of a tuple that comes out."""
    varies: CostKind = CostKind.CONSTANT
    synchronised: bool = False
    """For a join: a side waits until the other stream has come as far in time."""
    window: float | None = None
    """For a join: partners are at most so many nanoseconds apart; None where any time may lie between."""


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """A query: operators bottom-up, the last of them the output."""

    id: str
    class_name: str
    operators: tuple[OperatorSpec, ...]


@dataclass(frozen=True, slots=True)
class Overheads:
    """What is paid besides the work on tuples, in nanoseconds."""

    context_switch: int = 0
    switch_point: SwitchPoint = SwitchPoint.OPERATORS
    empty_visit: int = 0
    """For looking at an operator or source that has nothing to do."""
    ring_visits: bool = False
    """Whether round robin pays for the operators that it passes over because they have nothing to do."""
    decision: int = 0
    """For every slice: asking the policy."""
    transition: int = 0
    """For every transition between scheduler and operators, and for every preemption (PRB paper, 5.6)."""
    accounting: Accounting = Accounting.CONSUMED
    noise: float = 0.0
    """Costs of a call vary by up to this share, upwards and downwards."""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """How sources are served and what that costs."""

    service: Service = Service.POLICY
    cost: float = 0.0
    """Nanoseconds per tuple,"""
    setup: float = 0.0
    """and per call."""
    train: int = 4096
    """Most tuples that a source hands on at a time."""
    cores: int = 0
    """Cores that serve nothing but sources,"""
    order: SourceOrder = SourceOrder.ROUND_ROBIN
    """and how they choose."""


@dataclass(frozen=True, slots=True)
class Change:
    """From a time on, something is different."""

    at: int
    priorities: Mapping[str, int] = field(default_factory=dict)
    """By class."""
    selectivities: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By query and operator."""
    costs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Likewise; nanoseconds per tuple."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that a run needs but the policy and the seed."""

    name: str
    priorities: Mapping[str, int]
    streams: tuple[StreamSpec, ...]
    queries: tuple[QuerySpec, ...]
    cores: int = 1
    sources: SourceSpec = SourceSpec()
    overheads: Overheads = Overheads()
    changes: tuple[Change, ...] = ()
    seconds: float | None = None
    """Stop then; None for when all that came is worked off."""
    response_from: ResponseFrom = ResponseFrom.ARRIVAL
    statistics: StatisticsKind = StatisticsKind.MEASURED
    exact_quantum: bool = False
    """Whether a slice's duration cuts a tuple in two; otherwise the tuple that is begun is finished."""
    sample_s: float = 0.1
    """Between two looks at the queues."""
