"""Types of the run-time optimizer that clients and server share: its settings and target states."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from mavstream_protocol.admission import AdmissionPolicy
from mavstream_protocol.described import Described
from mavstream_protocol.explained import refusal
from mavstream_protocol.quantities import Percent, PositiveDuration, format_duration
from mavstream_protocol.specification import DEFAULT_SPECIFICATION, Specification

_SECOND = 1_000_000
_SHORTEST_PERIOD, _LONGEST_PERIOD = _SECOND // 10, 60 * _SECOND


class Objective(StrEnum):
    """The measured quantity that a target limits."""

    LATENCY = "latency"
    MEMORY = "memory"
    THROUGHPUT = "throughput"


class TargetState(StrEnum):
    """Whether a target is met."""

    KEPT = "kept"
    AT_RISK = "at risk"
    """Within the tolerance, or beyond it for too short a time to act."""
    MISSED = "missed"
    UNKNOWN = "unknown"
    """Nothing was measured yet, or the query does not run."""


class Outcome(StrEnum):
    """The result of an optimizer action."""

    PROBATION = "probation"
    KEPT = "kept"
    UNDONE = "undone"
    RELAXED = "relaxed"
    """A measure that was no longer needed was reduced or ended."""
    FAILED = "failed"
    """The action could not be executed."""
    OVERRULED = "overruled"
    """A user changed the affected setting before the action was judged."""
    PROPOSED = "proposed"
    """It is for users to decide: nothing was changed."""


class PolicyChoice(StrEnum):
    """How the rule `policy` selects a policy."""

    TABLE = "table"
    """By a table that maps missed objectives to the policies made for them."""
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


class PaceSettings(Described):
    """Durations and thresholds of the optimizer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    probation: Annotated[PositiveDuration, Field(json_schema_extra={"default": "15s"})] = 15 * _SECOND
    """Time until an action is judged; must exceed the sliding window of the metrics."""
    bar: Annotated[PositiveDuration, Field(json_schema_extra={"default": "2m"})] = 120 * _SECOND
    """Time during which an action that did not help is not tried again."""
    calm: Annotated[PositiveDuration, Field(json_schema_extra={"default": "15s"})] = 15 * _SECOND
    """Time without a missed target before a measure is reduced, and between two reductions."""
    gain: Annotated[Percent, Field(json_schema_extra={"default": "10%"})] = 0.1
    """The share by which misses must decrease for an action to be retained."""


class OptimizerSettings(Described):
    """Settings of the optimizer; omitted ones take their defaults."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
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
    """Interval between two checks, 100ms to 60s."""
    rules: dict[str, bool] = {}
    """Rules by name, on or off; omitted rules are on."""
    pace: PaceSettings = PaceSettings()
    """Durations and thresholds."""
    policy_choice: PolicyChoice = PolicyChoice.TABLE
    """How the rule `policy` selects a policy."""
    specification: Specification = DEFAULT_SPECIFICATION
    """The performance specification by which AMoS rates policies."""
    admission: AdmissionPolicy | None = None
    """Handling of new queries that do not fit; null uses the setting that the server was started with."""
