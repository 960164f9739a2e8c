"""Memory: queries whose state or output grows without end; each must fail by name, with its limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx

from attack.findings import Findings
from attack.options import Options
from attack.target.server import send
from attack.target.target import Target

STREAM = "hoarded"
_SETTLED = ("failed", "finished", "stopped")
_PATIENCE = 60.0  # seconds until a query must have failed or read its rows
_POLL = 0.05
_ROWS_AT_ONCE = 10_000
_JOINED = 20_000  # rows with the same key


class Hoarder(NamedTuple):
    """A query that wants more memory than it may have, and the rows that it reads."""

    name: str
    nodes: dict[str, Any]
    root: str
    rows: int
    columns: dict[str, Any]
    """Values of the columns by row number."""
    must_fail: bool = True
    """Otherwise it may also answer within its limit, in pieces."""


def run(target: Target, options: Options) -> Findings:
    """Run one query after the other, and wait until it has failed or read everything."""
    findings = Findings()
    outcomes = {}
    for hoarder in hoarders():
        fields = [{"name": "at", "type": "timestamp"}, {"name": "k", "type": "int"}]
        fields.append({"name": "s", "type": "string"})
        target.server.create("/v1/streams", {"name": STREAM, "fields": fields, "event_time": "at"})
        with target.server.client("client") as http:
            outcomes[hoarder.name] = _attack(target, http, hoarder, findings)
        longest = target.server.engine()["slice_ms"]["max"]
        outcomes[hoarder.name] += f" (longest slice so far {longest:.0f} ms)"
        target.tidy()
    findings.metrics |= outcomes
    return findings


def hoarders() -> Iterator[Hoarder]:
    """Return the queries."""
    source = {"op": "source", "stream": STREAM}
    doubled: dict[str, Any] = {"in": source}
    for n in range(40):
        below = f"p{n - 1}" if n else "in"
        doubled[f"p{n}"] = {"op": "project", "input": below, "compute": {"s": "s || s"}}
    same = {"at": lambda n: n, "k": lambda n: 7, "s": lambda n: "ab"}
    # The last row closes all windows with the others.
    closing = {**same, "at": lambda n: n if n < _JOINED - 1 else 1_000_000_000}
    yield Hoarder("texts doubled 40 times", doubled, "p39", 1, same)
    pairs = {"op": "join", "left": "a", "right": "b", "on": [["k", "k"]], "compute": {"x": "l.s", "y": "r.s"}}
    sides = {"a": source, "b": source}
    hopping = {"kind": "hopping", "size": "100s", "hop": "1s"}
    joined = {**sides, "j": {**pairs, "window": hopping}}
    yield Hoarder("self join in hopping windows", joined, "j", _JOINED, closing, must_fail=False)
    within = {**sides, "j": {**pairs, "within": "1h"}}
    yield Hoarder("20,000 x 20,000 pairs", within, "j", _JOINED, same, must_fail=False)
    distinct = {**same, "k": lambda n: n, "s": lambda n: f"a key of its own, number {n:x}"}
    groups = {
        "op": "aggregate",
        "input": "in",
        "by": ["k", "s"],
        "window": {"kind": "tumbling", "size": "1d"},
        "compute": {"n": "count(*)", "m": "median(k)", "d": "count(distinct s)"},
    }
    yield Hoarder("many groups", {"in": source, "g": groups}, "g", 600_000, distinct)


def _attack(target: Target, http: httpx.Client, hoarder: Hoarder, findings: Findings) -> str:
    spec = {"plan": {"root": hoarder.root, "nodes": hoarder.nodes}}
    made = send(http, findings, "POST", "/v1/queries", json=spec)
    if made.status_code != 201:
        code = made.json()["errors"][0]["code"] if made.status_code == 422 else made.json()["code"]
        findings.expect(made.status_code == 422, f"{hoarder.name}: refused with {made.text[:200]}")
        return f"refused ({code})"
    id_ = str(made.json()["id"])
    _feed(target, hoarder, findings, id_)
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        info = send(http, findings, "GET", f"/v1/queries/{id_}").json()
        if info["state"] in _SETTLED:
            break
        if not hoarder.must_fail and time.monotonic() > end - _PATIENCE + 5:
            break
        time.sleep(_POLL)
    reason = info["reason"] or ""
    if hoarder.must_fail or info["state"] == "failed":
        findings.expect(info["state"] == "failed", f"{hoarder.name}: the query is {info['state']}")
        named = "memory" in reason or "characters" in reason
        findings.expect(named, f"{hoarder.name}: the reason does not name the limit: {reason}")
    return f"{info['state']} {reason}".strip()


def _feed(target: Target, hoarder: Hoarder, findings: Findings, id_: str) -> None:
    """Append the rows, as long as the query runs."""
    with target.server.client("feeder") as http:
        for first in range(0, hoarder.rows, _ROWS_AT_ONCE):
            numbers = range(first, min(first + _ROWS_AT_ONCE, hoarder.rows))
            columns = {name: [value(n) for n in numbers] for name, value in hoarder.columns.items()}
            path = f"/v1/streams/{STREAM}/tuples"
            send(http, findings, "POST", path, json={"columns": columns})
            if http.get(f"/v1/queries/{id_}").json()["state"] in _SETTLED:
                return
