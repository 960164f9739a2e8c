"""Descriptions of the scheduling policies."""

from __future__ import annotations

import inspect
from typing import Any

from mavstream_protocol.wire.resources import PolicyInfo
from mavstream_server.scheduling.policy import Policy
from mavstream_server.scheduling.registry import POLICIES


def describe_all() -> list[PolicyInfo]:
    """Return the descriptions of all policies, by name."""
    return [describe(POLICIES[name]) for name in sorted(POLICIES)]


def describe(policy: type[Policy[Any]]) -> PolicyInfo:
    """Return the description of a policy."""
    return PolicyInfo(
        name=policy.name,
        description=inspect.getdoc(policy) or "",
        optimises=policy.optimises,
        options=policy.Options.model_json_schema(),
    )
