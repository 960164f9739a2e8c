"""The optimizer as clients see it: what it may do, what is in force, and what was decided."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from mavstream_protocol.optimizer import OptimizerSettings, Outcome

_CONFIG = ConfigDict(frozen=True, use_attribute_docstrings=True)

_DECISION: dict[str, Any] = {
    "number": 7,
    "at": "2026-01-01T12:00:00.000000Z",
    "rule": "policy",
    "what": "switch from rr to cqc",
    "why": "latency of query alarms-k3xv7q in class critical: p95 is 210, the target 50",
    "queries": ["alarms-k3xv7q"],
    "before": 19.2,
    "after": 0.0,
    "outcome": "kept",
    "ended": "2026-01-01T12:00:10.000000Z",
    "note": "",
}


class DecisionInfo(BaseModel):
    """An action that was taken, why, and what came of it."""

    model_config = ConfigDict(**_CONFIG, json_schema_extra={"examples": [_DECISION]})
    number: int
    """Counted since the server started, from 1."""
    at: str
    rule: str
    what: str
    why: str
    """With the numbers that led to it."""
    queries: tuple[str, ...]
    """For whom, and who gives something for it."""
    before: float
    """How much was missed when it was taken: how far missed targets were exceeded, times class priorities,"""
    after: float | None
    """and when it was judged; null before."""
    outcome: Outcome
    ended: str | None
    """When it was judged, or ended in another way."""
    note: str
    """Why it ended so, where there is more to say."""


class RuleInfo(BaseModel):
    """A rule of the optimizer, in the order in which they are tried."""

    model_config = _CONFIG
    name: str
    about: str
    """What it does and when."""
    enabled: bool


class OptimizerInfo(BaseModel):
    """The optimizer as it stands."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [
                {
                    "settings": {"enabled": True, "period": "1s"},
                    "rules": [
                        {
                            "name": "policy",
                            "about": "switches to a policy that is made for the objective that is missed",
                            "enabled": True,
                        }
                    ],
                    "policy": "cqc",
                    "probation": None,
                    "shed": {"report-p2m4aa": 0.0125},
                    "weights": {"alarms-k3xv7q": 2},
                    "targets": {"critical": {"kept": 3, "at risk": 0, "missed": 1, "unknown": 0}},
                    "decisions": 7,
                }
            ]
        },
    )
    settings: OptimizerSettings
    rules: tuple[RuleInfo, ...]
    """In the order in which they are tried."""
    policy: str
    """The scheduling policy that decides now."""
    probation: DecisionInfo | None
    """The action that waits to be judged."""
    shed: dict[str, float]
    """The share of rows that is left out now, by query; those that read all are not in it."""
    weights: dict[str, int]
    """What queries weigh in their class, by query; those that weigh 1 are not in it."""
    targets: dict[str, dict[str, int]]
    """How many targets stand how, by class."""
    decisions: int = Field(ge=0)
    """Made since the server started."""
