"""What clients and server agree on about the run-time optimizer: what it may do, and how targets stand."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mavstream_protocol.admission import AdmissionPolicy
from mavstream_protocol.explained import refusal
from mavstream_protocol.quantities import Percent, PositiveDuration, format_duration
from mavstream_protocol.specification import DEFAULT_SPECIFICATION, Specification

_SECOND = 1_000_000
_SHORTEST_PERIOD, _LONGEST_PERIOD = _SECOND // 10, 60 * _SECOND


class Objective(StrEnum):
    """What a target is about."""

    LATENCY = "latency"
    MEMORY = "memory"
    THROUGHPUT = "throughput"


class TargetState(StrEnum):
    """How a target stands."""

    KEPT = "kept"
    AT_RISK = "at risk"
    """Within the tolerance, or beyond it for too short a time to act."""
    MISSED = "missed"
    UNKNOWN = "unknown"
    """Nothing was measured yet, or the query does not run."""


class Outcome(StrEnum):
    """What became of an action."""

    PROBATION = "probation"
    KEPT = "kept"
    UNDONE = "undone"
    RELAXED = "relaxed"
    """It took back what was not needed any more."""
    FAILED = "failed"
    """It could not be done."""
    OVERRULED = "overruled"
    """A person changed what it was about, before it was judged."""


class PolicyChoice(StrEnum):
    """How the rule `policy` chooses."""

    TABLE = "table"
    """From what is missed to the policies that are made for it."""
    AMOS = "amos"
    """AMoS with the specification as weights first, then the table."""


def _sensible_period(value: int) -> int:
    if not _SHORTEST_PERIOD <= value <= _LONGEST_PERIOD:
        raise refusal(
            "period",
            f"period {format_duration(value)} is not from {format_duration(_SHORTEST_PERIOD)} to "
            f"{format_duration(_LONGEST_PERIOD)}: shorter ones cost more than they tell",
        )
    return value


class PaceSettings(BaseModel):
    """How long things take."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    probation: Annotated[PositiveDuration, Field(json_schema_extra={"default": "15s"})] = 15 * _SECOND
    """Before an action is judged: what it was taken for must have left the sliding figures."""
    bar: Annotated[PositiveDuration, Field(json_schema_extra={"default": "2m"})] = 120 * _SECOND
    """In which an action that did not help is not tried again."""
    calm: Annotated[PositiveDuration, Field(json_schema_extra={"default": "15s"})] = 15 * _SECOND
    """Without a missed target before anything is taken back, and between two steps back."""
    gain: Annotated[Percent, Field(json_schema_extra={"default": "10%"})] = 0.1
    """The share by which less must be missed for an action to be kept."""


class OptimizerSettings(BaseModel):
    """What the optimizer may do and how; what is left out takes its default."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [
                {
                    "enabled": True,
                    "period": "1s",
                    "rules": {"shedding": False},
                    "pace": {"probation": "15s", "bar": "2m", "calm": "15s", "gain": "10%"},
                    "policy_choice": "table",
                    "specification": {
                        "requirements": [
                            {"metric": "delay", "quantifier": "minimise", "weight": 0.7},
                            {"metric": "output_rate", "quantifier": "maximise", "weight": 0.3},
                        ]
                    },
                }
            ]
        },
    )

    enabled: bool = True
    """Whether it acts; targets are watched in either case."""
    period: Annotated[
        PositiveDuration, AfterValidator(_sensible_period), Field(json_schema_extra={"default": "1s"})
    ] = _SECOND
    """How often it looks, 100ms to 60s."""
    rules: dict[str, bool] = {}
    """Rules that are on or off, by name; those left out are on."""
    pace: PaceSettings = PaceSettings()
    """How long things take."""
    policy_choice: PolicyChoice = PolicyChoice.TABLE
    """How the rule `policy` chooses."""
    specification: Specification = DEFAULT_SPECIFICATION
    """What AMoS judges policies by, while it decides."""
    admission: AdmissionPolicy | None = None
    """What is done about new queries that do not fit in; null: as the server was started."""
