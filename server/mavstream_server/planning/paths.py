"""Paths of a running plan, from the operators above its sources to the output."""

from __future__ import annotations

from mavstream_protocol.typed_plan import TypedPlan

OUTPUT = "#output"
"""The name of the operator above the root; no node can have it."""


def paths_to_output(plan: TypedPlan) -> tuple[tuple[str, ...], ...]:
    """Return the paths of a plan in the form of `Network.paths`."""
    return tuple((*path[1:], OUTPUT) for path in plan.paths())
