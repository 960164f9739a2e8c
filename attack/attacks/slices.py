"""Slices: queries whose steps are long, while a query of a more important class waits for its turn."""

from __future__ import annotations

import time
from typing import Any

import httpx

from attack.findings import Findings
from attack.options import Options
from attack.target.server import send
from attack.target.target import Target

STREAM = "sliced"
GOAL_MS = {"p99": 5.0, "max": 20.0}
"""The goal for the time between two decisions of the scheduler; a miss is reported, not a violation."""
_AGGREGATES = {"m": "median(x)", "d": "count(distinct x)"}
_ROWS = 20_000
_HOP_US = 1000


def run(target: Target, options: Options) -> Findings:
    """Check that impossible windows are refused, and run those that are allowed side by side."""
    findings = Findings()
    fields = [{"name": "at", "type": "timestamp"}, {"name": "k", "type": "int"}, {"name": "x", "type": "int"}]
    target.server.create("/v1/streams", {"name": STREAM, "fields": fields, "event_time": "at"})
    before = target.server.engine()["slices"]
    with target.server.client("client") as http:
        _refused(http, findings)
        size = _largest(http, findings)
        findings.metrics["largest hopping window"] = f"{size} ms / 1 ms"
        for name, nodes, root in (
            ("windows", _hopping(size), "a"),
            ("pairs", _pairs(), "j"),
            ("many windows", _hopping(1, by=["k"]), "a"),
        ):
            spec = {"plan": {"root": root, "nodes": nodes}}
            made = send(http, findings, "POST", "/v1/queries", json=spec)
            findings.expect(made.status_code == 201, f"{name}: {made.text[:300]}")
        _feed(target, findings, options.seconds)
    engine = target.server.engine()
    findings.metrics["slices"] = engine["slices"] - before
    for key, goal in GOAL_MS.items():
        value = engine["slice_ms"][key]
        verdict = "" if value <= goal else ", missed"
        findings.metrics[f"slice {key}"] = (
            f"{value:.1f} ms since the engine started (goal {goal:g} ms{verdict})"
        )
    return findings


def _refused(http: httpx.Client, findings: Findings) -> None:
    spec = {"plan": {"root": "a", "nodes": _hopping(100_000)}}
    answer = send(http, findings, "POST", "/v1/queries", json=spec)
    findings.expect(answer.status_code == 422, "a window of 100 s every 1 ms was not refused")
    findings.expect(
        "100000" in answer.text, f"the number that is too large is not named: {answer.text[:300]}"
    )


def _largest(http: httpx.Client, findings: Findings) -> int:
    """Return the largest size (ms) of a window that hops every millisecond."""
    low, high = 1, 100_000
    while high - low > 1:
        middle = (low + high) // 2
        plan = {"root": "a", "nodes": _hopping(middle)}
        valid = send(http, findings, "POST", "/v1/queries/validate", json=plan).json()["valid"]
        low, high = (middle, high) if valid else (low, middle)
    return low


def _feed(target: Target, findings: Findings, seconds: float) -> None:
    """Append rows for some seconds, with jumps in time that close many windows at once."""
    end, first, at = time.monotonic() + seconds, 0, 0
    with target.server.client("feeder") as http:
        while time.monotonic() < end:
            columns = {
                "at": [at + n * _HOP_US // 10 for n in range(_ROWS)],
                "k": [n % 100 for n in range(_ROWS)],
                "x": [first + n for n in range(_ROWS)],
            }
            send(http, findings, "POST", f"/v1/streams/{STREAM}/tuples", json={"columns": columns})
            first, at = first + _ROWS, at + 100_000_000
            time.sleep(seconds / 20)


def _hopping(size_ms: int, by: list[str] | None = None) -> dict[str, Any]:
    window = {"kind": "hopping", "size": f"{size_ms}ms", "hop": "1ms"}
    aggregate = {"op": "aggregate", "input": "in", "by": by or [], "window": window, "compute": _AGGREGATES}
    return {"in": {"op": "source", "stream": STREAM}, "a": aggregate}


def _pairs() -> dict[str, Any]:
    source = {"op": "source", "stream": STREAM}
    join = {"op": "join", "left": "l", "right": "r", "on": [["k", "k"]], "within": "200ms"}
    return {"l": source, "r": source, "j": {**join, "compute": {"x": "l.x", "y": "r.x"}}}
