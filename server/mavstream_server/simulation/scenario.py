"""Scenarios: fully expanded input of a simulation. Times are nanoseconds, rates tuples per second.

A workload file is compact, with families of queries and ranges of values; it is expanded into a scenario that
lists every stream, query and operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SECOND = 1_000_000_000
MICROSECOND = 1_000


class Service(StrEnum):
    """How tuples get from streams into queues: as in the live engine, or directly."""

    POLICY = "policy"
    """As in the policy's paper; `own_core` wherever there are cores for sources."""
    BETWEEN_SLICES = "between_slices"
    WHEN_IDLE = "when_idle"
    PER_CLASS = "per_class"
    OWN_CORE = "own_core"
    DIRECT = "direct"
    """Without source operators: a tuple is in the queue of the leaf at the moment it arrives."""


class SourceOrder(StrEnum):
    """Which source a core that runs only sources reads next."""

    ROUND_ROBIN = "round_robin"
    BROADCAST_DISK = "broadcast_disk"
    """Slots by the priority of the most important class that reads the source (dissertation, 6.3.6)."""


class ArrivalKind(StrEnum):
    """Distribution of the times between two tuples."""

    POISSON = "poisson"
    FIXED = "fixed"
    BURSTY = "bursty"
    """Poisson at two alternating rates."""
    RECORDED = "recorded"


class CostKind(StrEnum):
    """How the cost of a tuple varies around its mean."""

    CONSTANT = "constant"
    EXPONENTIAL = "exponential"


class Accounting(StrEnum):
    """How overheads are accounted for."""

    CONSUMED = "consumed"
    """Overheads consume time of the core."""
    COUNTED = "counted"
    """Overheads consume no time; their sum, divided by the input tuples, is added to the response times."""


class SwitchPoint(StrEnum):
    """When a core pays for a context switch."""

    OPERATORS = "operators"
    """When it switches to another operator than it ran last."""
    QUERIES = "queries"
    """When it switches to another query."""
    SLICES = "slices"
    """Once for every slice."""


class ResponseFrom(StrEnum):
    """Where the measurement of response times starts."""

    ARRIVAL = "arrival"
    SOURCE_READ = "source_read"
    """When a source operator starts to read the tuple; the wait before that is not included (CQC paper)."""


class StatisticsKind(StrEnum):
    """Which statistics policies see."""

    MEASURED = "measured"
    """Published every 200 tuples and smoothed, as in the live engine; until then the true values."""
    DECLARED = "declared"
    """Always the true values."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Alternating periods of a high and a low rate, starting with the high one."""

    high_s: float
    low_s: float
    low_rate: float = 0.0
    random: bool = False
    """Whether the lengths are means of exponential distributions."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream and the arrivals of its tuples."""

    name: str
    rate: float
    kind: ArrivalKind = ArrivalKind.POISSON
    tuples: int | None = None
    """Number of tuples after which the stream ends; None if it never ends."""
    rates: tuple[tuple[float, float], ...] = ()
    """(second, rate from then on), in order."""
    burst: Burst | None = None
    offsets: tuple[float, ...] = ()
    """Arrival times in seconds, for `recorded`."""
    begin_s: float = 0.0
    size: float = 64.0
    """Bytes of a tuple."""


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """An operator with its costs and selectivity."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    """Operators of the same query, streams, or the answers of another query: see `answers_of`."""
    cost: float
    """Nanoseconds per input tuple."""
    setup: float = 0.0
    """Nanoseconds per call."""
    per_output: float = 0.0
    """Nanoseconds per output tuple."""
    selectivity: float = 1.0
    random: bool = False
    """Whether tuples pass at random; otherwise at regular intervals, so that fractions add up."""
    size: float = 64.0
    """Bytes of an output tuple."""
    varies: CostKind = CostKind.CONSTANT
    synchronised: bool = False
    """For a join: whether a side waits until the other side has reached the same time."""
    window: float | None = None
    """For a join: partners are at most this many nanoseconds apart; None without a limit."""


READING = "results"
"""Kind of the operators that read the answers of another query; no other kind may."""
_ANSWERS = "query:"


def answers_of(id_: str) -> str:
    """Return the name under which operators of kind `results` read the answers of a query."""
    return _ANSWERS + id_


def read_query(name: str) -> str | None:
    """Return the id of the query whose answers an input stands for, or None."""
    return name.removeprefix(_ANSWERS) if name.startswith(_ANSWERS) else None


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """A query: operators bottom-up, the last of them the output. It comes after the queries that it reads."""

    id: str
    class_name: str
    operators: tuple[OperatorSpec, ...]
    latency_target: int | None = None
    """Its own latency target; None if that of its class applies."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """Overheads in addition to the work on tuples, in nanoseconds."""

    context_switch: int = 0
    switch_point: SwitchPoint = SwitchPoint.OPERATORS
    empty_visit: int = 0
    """Per visit of an operator or source that has nothing to do."""
    ring_visits: bool = False
    """Whether round robin pays for the operators that it skips because they have nothing to do."""
    decision: int = 0
    """Per slice, for the decision of the policy."""
    transition: int = 0
    """Per transition between scheduler and operators, and per preemption (PRB paper, 5.6)."""
    accounting: Accounting = Accounting.CONSUMED
    noise: float = 0.0
    """Largest relative deviation of the costs of a call, upwards and downwards."""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """How sources are run and what they cost."""

    service: Service = Service.POLICY
    cost: float = 0.0
    """Nanoseconds per tuple."""
    setup: float = 0.0
    """Nanoseconds per call."""
    train: int = 4096
    """Most tuples that a source passes on per call."""
    cores: int = 0
    """Cores that run only sources."""
    order: SourceOrder = SourceOrder.ROUND_ROBIN
    """Order in which these cores read the sources."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of priorities, selectivities or costs at a point in time (ns)."""

    at: int
    priorities: Mapping[str, int] = field(default_factory=dict)
    """New priorities by class."""
    selectivities: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """New selectivities by query and operator."""
    costs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """New costs in nanoseconds per tuple, by query and operator."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Input of a run, except for the policy and the seed."""

    name: str
    priorities: Mapping[str, int]
    streams: tuple[StreamSpec, ...]
    queries: tuple[QuerySpec, ...]
    latencies: Mapping[str, int] = field(default_factory=dict)
    """Latency targets of classes that have one, for queries without their own."""
    cores: int = 1
    sources: SourceSpec = SourceSpec()
    overheads: Overheads = Overheads()
    changes: tuple[Change, ...] = ()
    seconds: float | None = None
    """End of the run; None: when all tuples are processed."""
    response_from: ResponseFrom = ResponseFrom.ARRIVAL
    statistics: StatisticsKind = StatisticsKind.MEASURED
    exact_quantum: bool = False
    """Whether the end of a slice interrupts a tuple; otherwise the current tuple is finished."""
    sample_s: float = 0.1
    """Seconds between two samples of the queues."""
