"""Scheduling types that clients and server share: settings and traces."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field

from mavstream_protocol.described import Described


class SourceService(StrEnum):
    """When sources emit tuples."""

    BETWEEN_SLICES = "between_slices"
    """A few at a time, between two slices."""
    WHEN_IDLE = "when_idle"
    """Only when nothing else is ready (AQSIOS)."""
    PER_CLASS = "per_class"
    """As operators that the policy schedules, so that a class pays for its sources (CQC)."""
    OWN_CORE = "own_core"
    """All of them in turn, as if by a core of their own (ABD, MBD)."""


class Sharing(StrEnum):
    """Which queries run equal prefixes once."""

    OFF = "off"
    """None: each runs all of its plan."""
    CLASS = "class"
    """Queries of the same class."""
    ALL = "all"
    """All queries; a prefix shared across classes runs in, and is charged to, the highest of these classes.
    """


class SchedulerSettings(Described):
    """The active policy, its options, and how sources are served."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: str
    options: dict[str, Any] = {}
    sources: SourceService | None = None
    """How sources are served; None uses the policy's default."""


DEFAULT_SCHEDULER = SchedulerSettings(
    policy="cqc", options={"inner": {"policy": "rr", "options": {"unit": "query"}}}
)
"""The default of a server: classes share by priority, and queries of a class take turns."""

LONGEST_TRACE = 60.0
"""Seconds."""


class TracedSlice(Described):
    """A recorded slice: operators of one query that the policy ran."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, serialize_by_alias=True)

    at_ms: float
    """Start of the slice, in milliseconds since the start of the trace."""
    took_ms: float
    """Duration of the slice in milliseconds."""
    core: int
    """The core on which it ran."""
    query: str
    """The id of the query, or `shared:1` and so on for a prefix that several have in common."""
    class_: str = Field(alias="class")
    """The class that the query belonged to then."""
    operators: tuple[str, ...]
    """Kinds of the operators, in the order in which they ran."""
    consumed: int
    """Tuples consumed, summed over the operators: one that passes three of them counts three times."""
    produced: int
    """Tuples that the operators handed on, added up in the same way."""


class SchedulerTrace(Described):
    """Recorded slices: which operators ran when, for how many tuples and how long."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "started": "2026-01-01T12:00:00.000000Z",
                    "seconds": 2.0,
                    "policy": "cqc",
                    "slices": [
                        {
                            "at_ms": 0.412,
                            "took_ms": 0.187,
                            "core": 0,
                            "query": "hot_homes-3k9x2a",
                            "class": "alarms",
                            "operators": ["source", "select", "output"],
                            "consumed": 2060,
                            "produced": 1048,
                        }
                    ],
                    "left_out": 0,
                    "reads": {},
                }
            ]
        },
    )

    started: str
    """When the trace began, ISO 8601 text."""
    seconds: float
    """Duration of the trace in seconds."""
    policy: str
    """The policy that decided when it began."""
    slices: list[TracedSlice]
    """Slices in the order in which they ran; no other slice ran between two of them."""
    left_out: int
    """Number of later slices that were not recorded because a trace has a maximum length."""
    reads: dict[str, tuple[str, ...]] = {}
    """By query that reads the results of others: the ids of these. Those in slices, and those below them."""
