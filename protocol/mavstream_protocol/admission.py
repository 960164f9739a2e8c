"""Admission: what a new query is expected to cost, and whether its targets and others' can be kept."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

_CONFIG = ConfigDict(
    frozen=True, populate_by_name=True, serialize_by_alias=True, use_attribute_docstrings=True
)


class AdmissionPolicy(StrEnum):
    """What is done about a new query that is expected to miss its targets, or to make others miss theirs."""

    WARN = "warn"
    """It is registered, and the answer says so."""
    REFUSE = "refuse"
    """It is not registered (409, `not_admitted`)."""
    OFF = "off"
    """Nothing is estimated."""


class Outlook(StrEnum):
    """Whether a target can be kept."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    """There is nothing to tell it from."""


class TargetOutlook(BaseModel):
    """A target of the new query, and what is expected."""

    model_config = _CONFIG
    objective: str
    """latency, memory or throughput."""
    statistic: str
    """What is compared: `mean`, `p95`, ..., `bytes`, `rows_per_s`."""
    target: float
    """Milliseconds, bytes or rows per second."""
    tolerance: float
    expected: float | None
    """In the unit of the target; null where nothing can be told, or where it would grow without end."""
    kept: Outlook
    reason: str
    """With the numbers."""


class EndangeredQuery(BaseModel):
    """A running query of the same or a more important class that is expected to miss a target."""

    model_config = _CONFIG
    query: str
    class_: str = Field(alias="class")
    objective: str
    statistic: str
    allowed: float | None
    """The target with its tolerance; null for memory and throughput, which go where a class falls behind."""
    now: float | None
    """What its class has now,"""
    expected: float | None
    """and with the new query; null where it would grow without end."""


class Utilisation(BaseModel):
    """The share of the engine's time that is used; null until there is enough to tell it from."""

    model_config = _CONFIG
    before: float | None
    """Measured over the last seconds, with what queries that are newer than that are expected to need."""
    after: float | None
    """With the new query."""


class AdmissionEstimate(BaseModel):
    """What is expected of a new query. An estimate: see docs/admission.md for what it is made of."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [
                {
                    "policy": "warn",
                    "admitted": True,
                    "cost_us_per_s": 1840.0,
                    "rows_per_s": 2000.0,
                    "memory_bytes": 12800.0,
                    "utilisation": {"before": 0.31, "after": 0.312},
                    "class_utilisation": {"before": 0.1, "after": 0.102},
                    "class_capacity": 0.79,
                    "targets": [
                        {
                            "objective": "latency",
                            "statistic": "p95",
                            "target": 50.0,
                            "tolerance": 0.1,
                            "expected": 4.2,
                            "kept": "yes",
                            "reason": "p95 is expected to be 4.2 ms, allowed are 55 ms",
                        }
                    ],
                    "endangered": [],
                    "endangered_queries": 0,
                    "warnings": [],
                }
            ]
        },
    )
    policy: AdmissionPolicy
    admitted: bool
    """Whether `refuse` would let it in."""
    cost_us_per_s: float
    """Microseconds of the engine's time per second."""
    rows_per_s: float
    """Rows that its streams bring now."""
    memory_bytes: float
    """What its windows and queues are expected to hold."""
    utilisation: Utilisation
    class_utilisation: Utilisation
    """The same of its class."""
    class_capacity: float | None
    """The share of the engine's time that its class could use beside the others as they are."""
    targets: tuple[TargetOutlook, ...] = ()
    endangered: tuple[EndangeredQuery, ...] = ()
    """Some of them, the tightest targets first."""
    endangered_queries: int = 0
    """How many there are."""
    warnings: tuple[str, ...] = ()
    """What is expected to go wrong, in words; empty if nothing is."""
