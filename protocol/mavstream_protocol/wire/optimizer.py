"""Optimizer resources of the REST API: state, rules and decisions."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from mavstream_protocol.described import Described
from mavstream_protocol.optimizer import OptimizerSettings, Outcome

_CONFIG = ConfigDict(frozen=True)

_DECISION: dict[str, Any] = {
    "number": 7,
    "at": "2026-01-01T12:00:00.000000Z",
    "rule": "policy",
    "what": "switch from rr to cqc",
    "why": "latency of query alarms-k3xv7q in class critical: p95 is 210, the target is 50",
    "queries": ["alarms-k3xv7q"],
    "before": 19.2,
    "after": 0.0,
    "outcome": "kept",
    "ended": "2026-01-01T12:00:10.000000Z",
    "note": "",
}


class DecisionInfo(Described):
    """An action of the optimizer, its reason and its result."""

    model_config = ConfigDict(**_CONFIG, json_schema_extra={"examples": [_DECISION]})
    number: int
    """Counted since the server started, from 1."""
    at: str
    rule: str
    what: str
    why: str
    """Reason for the action, with the numbers."""
    queries: tuple[str, ...]
    """The queries for which it was taken and those that it restricts."""
    before: float
    """Distress when the action was taken: how far missed targets were exceeded, times class priorities."""
    after: float | None
    """Distress when the action was judged; null until then."""
    outcome: Outcome
    ended: str | None
    """When the action was judged or ended otherwise."""
    note: str
    """Additional explanation of the outcome; may be empty."""


class RuleInfo(Described):
    """A rule of the optimizer; rules are tried in the listed order."""

    model_config = _CONFIG
    name: str
    about: str
    """Description of the action and its conditions."""
    enabled: bool


class OptimizerInfo(Described):
    """State of the optimizer."""

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
    """Rules, in the order in which they are tried."""
    policy: str
    """The scheduling policy that decides now."""
    probation: DecisionInfo | None
    """The action that is on probation."""
    shed: dict[str, float]
    """Share of rows that is being shed, by query; queries without shedding are omitted."""
    weights: dict[str, int]
    """Weights of queries in their class, by query; a weight of 1 is omitted."""
    targets: dict[str, dict[str, int]]
    """Number of targets by class and state."""
    decisions: int = Field(ge=0)
    """Made since the server started."""
