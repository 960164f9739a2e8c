"""What clients and server agree on about scheduling."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class SourceService(StrEnum):
    """When sources hand on tuples."""

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
    """Those of one class."""
    ALL = "all"
    """All; what queries of several classes share runs in the highest of these, and is charged to it."""


class SchedulerSettings(BaseModel):
    """The policy that decides, its options, and how sources are served."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    policy: str
    options: dict[str, Any] = {}
    sources: SourceService | None = None
    """None: as the policy's paper has it."""


DEFAULT_SCHEDULER = SchedulerSettings(
    policy="cqc", options={"inner": {"policy": "rr", "options": {"unit": "query"}}}
)
"""What a server starts with: classes share by priority, and inside one every query has its turn."""

LONGEST_TRACE = 60.0
"""Seconds."""


class TracedSlice(BaseModel):
    """A turn: operators of one query that the scheduler let run."""

    model_config = ConfigDict(
        frozen=True, populate_by_name=True, serialize_by_alias=True, use_attribute_docstrings=True
    )

    at_ms: float
    """When it began, in milliseconds from the start of the trace."""
    took_ms: float
    """How long it ran, in milliseconds."""
    core: int
    """Where it ran."""
    query: str
    """The id of the query, or `shared:1` and so on for a prefix that several have in common."""
    class_: str = Field(alias="class")
    """The class that the query belonged to then."""
    operators: tuple[str, ...]
    """What the operators do, in the order in which they ran."""
    consumed: int
    """Tuples that the operators took, added up: one that went through three of them counts three times."""
    produced: int
    """Tuples that the operators handed on, added up in the same way."""


class SchedulerTrace(BaseModel):
    """Who ran when, for how many tuples and how long."""

    model_config = ConfigDict(
        frozen=True,
        use_attribute_docstrings=True,
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
                }
            ]
        },
    )

    started: str
    """When the trace began, ISO 8601 text."""
    seconds: float
    """How long it went on."""
    policy: str
    """The policy that decided when it began."""
    slices: list[TracedSlice]
    """In the order in which they ran; there was no slice in the time between two."""
    left_out: int
    """Slices behind these that were run and not recorded, because a trace holds only so many."""
