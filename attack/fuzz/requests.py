"""Generator of HTTP requests: valid requests of every route, most of them with mutations.

Request `number` of a seed is always the same. Ids of queries are given by the server: requests have `{query}`
in their place, which the sender replaces with an id that it has seen.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

from attack.fuzz.mutations import changed, encoded, flip, strange

QUERY = "{query}"
"""Stands for the id of a query."""
ROLES = ("admin", "client", "feeder")
STREAMS = tuple(f"fuzz_{n}" for n in range(8))
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "NONSENSE")
_TYPES = ("application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream", "text/csv")
_HEADERS = (
    *("If-Match", "Idempotency-Key", "Producer", "Sequence", "Accept", "Content-Type", "Origin", "Host"),
    *("Authorization", "Cookie", "Expect", "Content-Encoding", "Range", "X-Forwarded-For", "Upgrade"),
)
_MUTATED = 0.8
_ROW = {"at": 1_767_225_600_000_000, "k": 1, "x": 0.5, "s": "text"}
_FIELDS = [
    {"name": "at", "type": "timestamp"},
    {"name": "k", "type": "int"},
    {"name": "x", "type": "float", "nullable": True},
    {"name": "s", "type": "string", "nullable": True},
]
_WINDOW = {"kind": "tumbling", "size": "1s"}


class FuzzRequest(NamedTuple):
    """A request before it is written."""

    role: str
    method: str
    path: str
    """With the query, quoted."""
    headers: dict[str, str]
    body: bytes | None
    framing: bytes | None = None
    """The whole head in its place, if the framing itself is mutated."""

    def bytes(self, host: str, token: str, query: str) -> bytes:
        """Return the request as it travels."""
        path = self.path.replace(QUERY, query)
        headers = {"Host": host, "Authorization": f"Bearer {token}", **self.headers}
        if self.body is not None:
            headers["Content-Length"] = str(len(self.body))
        lines = [f"{self.method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        head = "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n"
        return (head if self.framing is None else self.framing) + (self.body or b"")


def request(seed: int, number: int) -> FuzzRequest:
    """Return request `number` of a seed."""
    random = Random(f"{seed}/{number}")
    method, path, parameters, body = _valid(random)
    headers = {} if body is None else {"Content-Type": _TYPES[0]}
    role = random.choice(ROLES)
    raw = None if body is None else json.dumps(body).encode()
    framing = None
    if random.random() < _MUTATED:
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            match random.randrange(8):
                case 0:
                    method = random.choice(_METHODS)
                case 1:
                    path = _changed_path(random, path)
                case 2:
                    parameters = changed(random, parameters)
                case 3:
                    headers |= _header(random)
                case 4 if body is not None:
                    raw = flip(random, json.dumps(body).encode())
                case 5:
                    framing = _framing(random, method, path)
                case _:
                    body = changed(random, body)
                    raw = encoded(random, body)
    query = _query(parameters)
    return FuzzRequest(role, method, quote(path, safe="/{}%") + query, headers, raw, framing)


def _valid(random: Random) -> tuple[str, str, dict[str, Any], Any]:
    """Return method, path, parameters and JSON body of a valid request."""
    stream, number = random.choice(STREAMS), random.randrange(16)
    one, results = f"/v1/queries/{QUERY}", {"after": random.randrange(-1, 50), "limit": 10}
    spec = {"name": stream, "fields": _FIELDS, "event_time": "at", "retention": {"bytes": "1MB"}}
    optimizer = {"enabled": True}
    choices: list[tuple[str, str, dict[str, Any], Any]] = [
        ("POST", "/v1/streams", {}, spec),
        ("POST", "/v1/streams", {}, spec),
        ("GET", "/v1/streams", {"limit": 5, "after": "a"}, None),
        ("GET", f"/v1/streams/{stream}", {}, None),
        ("DELETE", f"/v1/streams/{stream}", {}, None),
        ("POST", f"/v1/streams/{stream}/tuples", {}, [_ROW] * random.randrange(4)),
        (
            "POST",
            f"/v1/streams/{stream}/tuples",
            {},
            {"columns": {key: [value] for key, value in _ROW.items()}},
        ),
        ("POST", f"/v1/streams/{stream}/complete", {}, {}),
        ("PUT", f"/v1/streams/{stream}/stages/fuzz_{number}", {}, [_ROW] * random.randrange(4)),
        ("GET", f"/v1/streams/{stream}/stages", {}, None),
        ("DELETE", f"/v1/streams/{stream}/stages/fuzz_{number}", {}, None),
        (
            "POST",
            f"/v1/streams/{stream}/batches",
            {},
            {"producer": f"fuzz_{number}", "sequence": random.randrange(3), "stages": [f"fuzz_{number}"]},
        ),
        (
            "PUT",
            f"/v1/classes/fuzz_{number}",
            {},
            {"name": f"fuzz_{number}", "priority": 2, "latency": "20ms"},
        ),
        ("GET", f"/v1/classes/fuzz_{number}", {}, None),
        ("DELETE", f"/v1/classes/fuzz_{number}", {}, None),
        ("GET", "/v1/classes", {"limit": 5}, None),
        ("POST", "/v1/queries", {}, _spec(random, stream)),
        ("POST", "/v1/queries", {}, _spec(random, stream)),
        ("POST", "/v1/queries/validate", {}, _spec(random, stream)),
        ("POST", "/v1/sql", {}, {"sql": f"EXPLAIN SELECT * FROM {stream}; SHOW STREAMS"}),
        ("PUT", one, {}, _spec(random, stream)),
        ("POST", "/v1/queries/try", {}, {"sql": f"SELECT * FROM {stream}", "rows": 10}),
        ("GET", "/v1/queries", {"limit": 5, "class": "default", "state": "running"}, None),
        ("GET", one, {}, None),
        ("PATCH", one, {}, {"state": random.choice(("paused", "running", "stopped"))}),
        ("PATCH", one, {}, {"class": f"fuzz_{number}", "qos": {"latency": {"p95": "20ms"}}}),
        ("DELETE", one, {}, None),
        ("DELETE", one, {}, None),
        ("GET", f"{one}/plan", {}, None),
        ("GET", f"{one}/qos", {}, None),
        ("GET", f"{one}/results", results, None),
        ("POST", f"{one}/results", {}, {"batch": 1, "state": {}, "needs": {}}),
        ("PUT", f"{one}/run", {}, {"runner": f"fuzz_{number}", "progress": {"rows_read": 1.0}}),
        ("PUT", f"/v1/tables/fuzz_{number}", {"fields": "k:int,t:string?"}, [{"k": 1, "t": "a"}]),
        ("GET", f"/v1/tables/fuzz_{number}", {}, None),
        ("GET", "/v1/tables", {"limit": 5}, None),
        ("DELETE", f"/v1/tables/fuzz_{number}", {}, None),
        ("GET", "/v1/policies", {}, None),
        ("GET", "/v1/scheduler", {}, None),
        ("PUT", "/v1/scheduler", {}, {"policy": "cqc"}),
        ("GET", "/v1/scheduler/trace", {"seconds": 0.01}, None),
        ("GET", "/v1/optimizer", {}, None),
        ("PUT", "/v1/optimizer", {}, optimizer),
        ("GET", "/v1/optimizer/decisions", {"limit": 5, "query": QUERY}, None),
        ("GET", "/v1/producers", {"limit": 5}, None),
        ("DELETE", f"/v1/producers/fuzz_{number}", {}, None),
        *(("GET", path, {}, None) for path in ("/v1/plan", "/v1/stats", "/v1/info", "/v1/feed", "/metrics")),
        *(("GET", path, {}, None) for path in ("/livez", "/readyz", "/docs", "/openapi.json")),
    ]
    return random.choice(choices)


def _spec(random: Random, stream: str) -> dict[str, Any]:
    source = {"op": "source", "stream": stream}
    aggregate = {"op": "aggregate", "input": "in", "by": ["k"], "window": _WINDOW, "compute": {"n": "sum(x)"}}
    join: dict[str, Any] = {"op": "join", "left": "in", "right": "in2", "on": [["k", "k"]], "within": "1s"}
    join["compute"] = {"a": "l.x", "b": "r.x"}
    nodes: dict[str, Any] = {"in": source}
    nodes["out"] = random.choice(
        (
            {"op": "select", "input": "in", "where": "x > 0.5 AND s LIKE 'a%'"},
            {"op": "project", "input": "in", "compute": {"k": "k + 1", "t": "upper(s) || 'x'"}},
            aggregate,
            join,
        )
    )
    if nodes["out"] is join:
        nodes["in2"] = source
    more = random.choice(
        ({}, {"name": "fuzz"}, {"from": "earliest"}, {"class": "default"}, {"mode": "one_time"})
    )
    return {"plan": {"root": "out", "nodes": nodes}, **more}


def _changed_path(random: Random, path: str) -> str:
    parts = path.split("/")
    place = random.randrange(1, len(parts))
    match random.randrange(4):
        case 0:
            parts[place] = str(strange(random, 1))
        case 1:
            parts.insert(place, str(strange(random, 1)))
        case 2:
            del parts[place]
        case _:
            parts[place] = flip(random, parts[place].encode()).decode(errors="replace")
    return "/" + "/".join(parts[1:])


def _query(parameters: Any) -> str:
    if not isinstance(parameters, dict):
        return "?" + quote(str(parameters))
    pairs = [
        f"{quote(str(name), safe='')}={quote(str(value), safe='{}')}" for name, value in parameters.items()
    ]
    return "?" + "&".join(pairs) if pairs else ""


def _header(random: Random) -> dict[str, str]:
    text = str(strange(random, 1)).replace("\r", "").replace("\n", "")
    usual = {"If-Match": '"1"', "Sequence": "1", "Producer": "fuzz_1", "Content-Type": random.choice(_TYPES)}
    name = random.choice(_HEADERS)
    return {name: usual.get(name, text) if random.random() < 0.4 else text}


def _framing(random: Random, method: str, path: str) -> bytes:
    """Return a head that is not quite HTTP, or whose length is wrong."""
    head = (
        f"{method} {quote(path)} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
    )
    match random.randrange(5):
        case 0:
            return head + b"Content-Length: %d\r\n\r\n" % random.choice((0, 1, 10**6, 10**18))
        case 1:
            return head + b"Content-Length: -1\r\n\r\n"
        case 2:
            return (
                head
                + b"Transfer-Encoding: chunked\r\n\r\n"
                + random.choice((b"zz\r\n", b"ffffffffff\r\n", b"1\r\nab"))
            )
        case 3:
            return head + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n"
        case _:
            return flip(random, head + b"\r\n")
