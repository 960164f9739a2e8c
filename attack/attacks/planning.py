"""Planning: plans that are expensive to validate, and plans that make no sense."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx

from attack.findings import Findings
from attack.options import Options
from attack.target.target import Target

STREAM = "planned"
_JSON = {"content-type": "application/json"}
_LARGEST = 1 << 20  # bytes of a plan that is read


def run(target: Target, options: Options) -> Findings:
    """Validate and register each plan; every one has to be answered at once, whatever it says."""
    findings = Findings()
    fields = [{"name": "x", "type": "int"}, {"name": "s", "type": "string"}]
    target.server.create("/v1/streams", {"name": STREAM, "fields": fields})
    with target.server.client("client") as http:
        first = next(plans())[1]
        # It starts the process that plans, and is named apart, since all others find it running.
        seconds = _post(http, findings, "/v1/queries/validate", "the first large plan", first)
        findings.metrics["first large plan, which starts a process"] = f"{seconds * 1e3:.0f} ms"
        for name, body in plans():
            for path in ("/v1/queries/validate", "/v1/queries"):
                _post(http, findings, path, name, body)
    return findings


def _post(http: httpx.Client, findings: Findings, path: str, name: str, body: bytes) -> float:
    """Send a plan and record the answer; returns the seconds that it took."""
    begin = time.monotonic()
    answer = http.post(path, content=body, headers=_JSON)
    seconds = time.monotonic() - begin
    findings.answered(f"{path} with {name}", answer.status_code, seconds)
    return seconds


def plans() -> Iterator[tuple[str, bytes]]:
    """Return the bodies by name."""
    terms = "+".join(["x"] * 60)
    for count in (2, 4):
        yield f"{count} x 256 sums of 60", _spec(_projects(count, lambda level, n: terms))
    yield "200 x 256 sums of 2", _spec(_projects(200, lambda level, n: f"c{n}+1" if level else "x"))
    yield "200 x 1 sums of 2", _spec(_projects(200, lambda level, n: f"c{n}+1" if level else "x", 1))
    yield "1 MB of columns", _filled(lambda n: {f"c{i}": f"x + {i}" for i in range(n)})
    yield "1 MB of one expression", _filled(lambda n: {"c": "x" + " + x" * n})
    yield "1 MB of white space", _filled(lambda n: {"c": "x" + " " * n})
    yield "1 MB of errors", _filled(lambda n: {f"c{i}": f"no{i} + nope(" for i in range(n)})
    yield "deep nesting", b"[" * 500_000 + b"]" * 500_000
    yield "deep objects", b'{"plan":' * 100_000 + b"1" + b"}" * 100_000
    yield "deep parentheses", _spec(_compute({"c": "(" * 30_000 + "x" + ")" * 30_000}))
    yield "deep negations", _spec(_compute({"c": "NOT " * 30_000 + "true", "d": "-" * 30_000 + "x"}))
    yield "deep cases", _spec(_compute({"c": "CASE WHEN x > 1 THEN " * 3000 + "1" + " END" * 3000}))
    yield "long chain", _spec(_chain(4000))
    yield "cycle", _spec({"root": "a", "nodes": {name: _select(other) for name, other in ("ab", "ba")}})
    yield "diamonds", _spec(_diamonds(40))
    yield "unknown everything", json.dumps(_unknown()).encode()
    yield "huge numbers", _spec(_compute({"c": "9" * 50_000, "d": "1e999999", "e": "x * " + "9" * 400}))
    yield "huge JSON numbers", b'{"name": "q", "plan": %s}' % (b"9" * 500_000)
    yield "huge exponents", b'{"name": "q", "plan": {"root": 1e999999999, "nodes": -1e-999999}}'
    yield (
        "unicode",
        _spec(_compute({"\uff43\u200b": "x", "\U0001f4a5": "'\u202e' || s", "c": "s || '\0\ufffe'"})),
    )
    yield "half a surrogate", b'{"name": "\\ud800", "plan": {"root": "\\udfff", "nodes": {}}}'
    yield "huge windows", _spec(_window({"kind": "hopping", "size": "9" * 4000 + "s", "hop": "1us"}))
    yield "like with many wildcards", _spec(_compute({"c": "s LIKE '" + "%a" * 20_000 + "'"}))


def _spec(plan: object) -> bytes:
    return json.dumps({"name": "q", "plan": plan}).encode()


def _source() -> dict[str, Any]:
    return {"op": "source", "stream": STREAM}


def _compute(compute: dict[str, str]) -> dict[str, Any]:
    nodes = {"in": _source(), "p": {"op": "project", "input": "in", "compute": compute}}
    return {"root": "p", "nodes": nodes}


def _projects(count: int, text: Any, columns: int = 255) -> dict[str, Any]:
    nodes: dict[str, Any] = {"in": _source()}
    for level in range(count):
        compute = {"x": "x", **{f"c{n}": text(level, n) for n in range(columns)}}
        below = f"p{level - 1}" if level else "in"
        nodes[f"p{level}"] = {"op": "project", "input": below, "compute": compute}
    return {"root": f"p{count - 1}", "nodes": nodes}


def _filled(compute: Any) -> bytes:
    """Return the largest plan below the limit, found by halving."""
    low, high = 1, _LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(_spec(_compute(compute(middle)))) <= _LARGEST else (low, middle)
    return _spec(_compute(compute(low)))


def _select(below: str) -> dict[str, Any]:
    return {"op": "select", "input": below, "where": "x > 0"}


def _chain(count: int) -> dict[str, Any]:
    nodes = {f"s{n}": _select(f"s{n - 1}" if n else "in") for n in range(count)}
    return {"root": f"s{count - 1}", "nodes": {"in": _source(), **nodes}}


def _diamonds(count: int) -> dict[str, Any]:
    """Return unions of a node with itself, which have 2 to the power of `count` paths."""
    nodes: dict[str, Any] = {"u0": _source()}
    for n in range(1, count):
        nodes[f"a{n}"], nodes[f"b{n}"] = _select(f"u{n - 1}"), _select(f"u{n - 1}")
        nodes[f"u{n}"] = {"op": "union", "inputs": [f"a{n}", f"b{n}"]}
    return {"root": f"u{count - 1}", "nodes": nodes}


def _window(window: dict[str, Any]) -> dict[str, Any]:
    aggregate = {"op": "aggregate", "input": "in", "window": window, "compute": {"n": "count(*)"}}
    return {"root": "a", "nodes": {"in": _source(), "a": aggregate}}


def _unknown() -> dict[str, Any]:
    nodes = {f"n{n}": {"op": f"op{n}", "input": f"m{n}", f"key{n}": n, "where": "?"} for n in range(2000)}
    others = {f"key{n}": None for n in range(2000)}
    return {"name": "nope!", "class": "none", "plan": {"root": "none", "nodes": nodes}, **others}
