"""Queries that differ in their constants only: ranges that a quarter of the rows passes, and rules."""

from __future__ import annotations

from typing import Any

_SENSORS = 1000


def range_plan(number: int, stream: str) -> dict[str, Any]:
    """Return the plan of a query that asks for a range of temperature and humidity."""
    return _plan(stream, f"temperature > {number % 40} AND humidity < {10 + number % 90}")


def rule_plan(number: int, stream: str) -> dict[str, Any]:
    """Return the plan of a rule: one sensor above a temperature, as no other rule has it."""
    return _plan(stream, f"sensor_id = {number % _SENSORS} AND temperature > {number // _SENSORS * 10 % 40}")


def _plan(stream: str, where: str) -> dict[str, Any]:
    compute = {"ts": "ts", "location": "location", "fahrenheit": "temperature * 1.8 + 32"}
    nodes = {
        "in": {"op": "source", "stream": stream},
        "hot": {"op": "select", "input": "in", "where": where},
        "answer": {"op": "project", "input": "hot", "compute": compute},
    }
    return {"root": "answer", "nodes": nodes}
