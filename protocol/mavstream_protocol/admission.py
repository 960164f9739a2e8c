"""Admission estimates: the expected cost of a new query and whether QoS targets can be met with it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import ConfigDict, Field

from mavstream_protocol.described import Described

_CONFIG = ConfigDict(frozen=True, populate_by_name=True, serialize_by_alias=True)


class AdmissionPolicy(StrEnum):
    """How the server handles new queries that are expected to cause missed targets."""

    WARN = "warn"
    """Register the query and list the expected problems in `warnings`."""
    REFUSE = "refuse"
    """Refuse the registration (409, `not_admitted`)."""
    OFF = "off"
    """Nothing is estimated."""


class Outlook(StrEnum):
    """Whether a target is expected to be met."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    """There is not enough data for an estimate."""


class TargetOutlook(Described):
    """One target of the new query and the estimate for it."""

    model_config = _CONFIG
    objective: str
    """The objective: latency, memory or throughput."""
    statistic: str
    """The statistic that is compared with the target: `mean`, `p95`, ..., `bytes`, `rows_per_s`."""
    target: float
    """Milliseconds, bytes or rows per second."""
    tolerance: float
    expected: float | None
    """The estimate, in the unit of the target; null if it is unknown or would grow without bound."""
    kept: Outlook
    reason: str
    """Explanation with the numbers."""


class EndangeredQuery(Described):
    """A running query of the same or a more important class that is expected to miss a target."""

    model_config = _CONFIG
    query: str
    class_: str = Field(alias="class")
    objective: str
    statistic: str
    allowed: float | None
    """The target including its tolerance; null for memory and throughput."""
    now: float | None
    """The value measured for the query's class now."""
    expected: float | None
    """The estimate with the new query running; null if it would grow without bound."""


class Utilisation(Described):
    """The share of the engine's time that is in use; null until enough was measured."""

    model_config = _CONFIG
    before: float | None
    """Measured over the last seconds, plus the expected need of queries that are too new to be measured."""
    after: float | None
    """Expected utilisation with the new query."""


class AdmissionEstimate(Described):
    """The estimate for a new query; docs/admission.md describes how it is computed."""

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
                            "reason": "p95 is expected to be 4.2 ms, at most 55 ms are allowed",
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
    """Whether the query would be admitted under `refuse`."""
    other_backend: str | None = None
    """The backend with which it would be admitted, if it would not be with the engine of this server."""
    cost_us_per_s: float
    """Microseconds of the engine's time per second."""
    rows_per_s: float
    """Current input rows per second of its streams."""
    memory_bytes: float
    """Expected bytes in the query's windows and queues."""
    utilisation: Utilisation
    class_utilisation: Utilisation
    """Utilisation by the query's class."""
    class_capacity: float | None
    """The share of the engine's time that its class could use beside the others as they are."""
    targets: tuple[TargetOutlook, ...] = ()
    endangered: tuple[EndangeredQuery, ...] = ()
    """Some of the endangered queries, those with the tightest targets first."""
    endangered_queries: int = 0
    """Total number of endangered queries; `endangered` lists only some of them."""
    warnings: tuple[str, ...] = ()
    """Expected problems as text; empty if there are none."""
