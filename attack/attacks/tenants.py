"""Tenants: what the holder of a token tries with the streams, producers and queries of others."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

from attack.findings import Findings
from attack.options import Options
from attack.target.producer import Producer, close_code, websocket
from attack.target.server import TargetServer, send, target_server
from attack.target.target import Target

TOKENS: dict[str, dict[str, Any]] = {
    "admin": {"role": "admin"},
    "alice": {"role": "client", "streams": ["a_*"], "classes": ["default"], "quotas": {"queries": 1}},
    "bob": {"role": "client"},
    "roof": {"role": "feeder", "streams": ["a_*"], "quotas": {"rows_per_second": 100, "connections": 3}},
    "cellar": {"role": "feeder"},
}
_WRONG_TOKENS = 200
_FIELDS = [{"name": "n", "type": "int"}]
_ROWS = [{"n": 1}]


def run(target: Target, options: Options) -> Findings:
    """Try everything that the table of roles forbids, on a server with several tokens."""
    findings = Findings()
    with target_server(target.folder / "tenants", tokens=TOKENS) as server:
        _Tenants(server, findings).run()
        server.check_health(findings, "tenants")
    return findings


class _Tenants:
    def __init__(self, server: TargetServer, findings: Findings) -> None:
        self._server = server
        self._findings = findings

    def run(self) -> None:
        for name in ("a_one", "b_one"):
            self._server.create("/v1/streams", {"name": name, "fields": _FIELDS})
        self._server.create("/v1/classes/alarms", {"name": "alarms", "priority": 10}, "PUT")
        self._roles()
        self._queries()
        self._producers()
        self._quotas()
        self._wrong_tokens()  # last, since it locks this address out for a minute

    def ask(self, token: str, expected: int, method: str, path: str, **options: Any) -> Any:
        """Send a request that must be answered with this status; returns the answer's JSON body."""
        with self._server.client(token) as http:
            answer = send(http, self._findings, method, path, **options)
        found = answer.status_code
        self._findings.expect(found == expected, f"{token}: {method} {path}: status {found}, not {expected}")
        return answer.json() if answer.content else {}

    def _roles(self) -> None:
        new = {"name": "b_two", "fields": _FIELDS}
        for token, method, path, body in (
            ("alice", "POST", "/v1/streams", new),
            ("roof", "POST", "/v1/streams", new),
            ("alice", "POST", "/v1/streams/a_one/tuples", _ROWS),
            ("roof", "POST", "/v1/streams/b_one/tuples", _ROWS),
            ("roof", "POST", "/v1/queries", _query("a_one")),
            ("alice", "POST", "/v1/queries", _query("b_one")),
            ("alice", "POST", "/v1/queries", {**_query("a_one"), "class": "alarms"}),
            ("bob", "POST", "/v1/streams/a_one/complete", {}),
            ("cellar", "POST", "/v1/streams/a_one/complete", {}),
            ("bob", "DELETE", "/v1/streams/a_one", None),
            ("cellar", "DELETE", "/v1/streams/a_one", None),
            ("bob", "PUT", "/v1/classes/alarms", {"name": "alarms", "priority": 1}),
            ("bob", "PUT", "/v1/scheduler", {"policy": "rr"}),
            ("cellar", "PUT", "/v1/optimizer", {"enabled": False}),
            ("bob", "DELETE", "/v1/producers/any", None),
        ):
            self.ask(token, 403, method, path, json=body)

    def _queries(self) -> None:
        others = self.ask("bob", 201, "POST", "/v1/queries", json=_query("b_one"))["id"]
        path = f"/v1/queries/{others}"
        for token in ("alice", "roof"):
            self.ask(token, 403, "PATCH", path, json={"state": "stopped"})
            self.ask(token, 403, "DELETE", path)
            self.ask(token, 403, "GET", f"{path}/results")
            with websocket(self._server, f"{path}/results", token) as socket:
                self._findings.closed(f"{token}: results of another", close_code(socket), (4403,))
        keyed = {"headers": {"Idempotency-Key": "key"}, "json": _query("a_one")}
        ids = [self.ask(token, 201, "POST", "/v1/queries", **keyed)["id"] for token in ("bob", "alice")]
        self._findings.expect(ids[0] != ids[1], "alice got the answer to bob's idempotency key")
        self.ask("alice", 429, "POST", "/v1/queries", json=_query("a_one"))

    def _producers(self) -> None:
        with Producer(self._server, "meter", "a_one", "roof") as producer:
            producer.append(1, _ROWS)
            with websocket(self._server, "/v1/feed", "cellar") as thief:
                thief.send(json.dumps({"type": "hello", "producer": "meter"}))
                self._findings.closed("another's producer", close_code(thief), (4403,))
            headers = {"Producer": "meter", "Sequence": "2"}
            self.ask("cellar", 403, "POST", "/v1/streams/a_one/tuples", json=_ROWS, headers=headers)
            self.ask("cellar", 403, "DELETE", "/v1/producers/meter")
            producer.append(2, _ROWS)
        with Producer(self._server, "meter", "a_one", "roof") as producer:
            self._findings.expect(
                producer.last == 2, f"sequences were burnt: the last one is {producer.last}"
            )

    def _quotas(self) -> None:
        self.ask("roof", 200, "POST", "/v1/streams/a_one/tuples", json=_ROWS * 150)
        self.ask("roof", 429, "POST", "/v1/streams/a_one/tuples", json=_ROWS)
        with ExitStack() as stack:
            for number in range(3):
                stack.enter_context(Producer(self._server, f"many_{number}", "a_one", "roof"))
            self.ask("roof", 429, "GET", "/v1/streams")
            with websocket(self._server, "/v1/feed", "roof") as fourth:
                self._findings.closed("one connection too many", close_code(fourth), (4429,))
            self.ask("cellar", 200, "GET", "/v1/streams")

    def _wrong_tokens(self) -> None:
        known = self._server.tokens
        known |= {"guess": "", "stranger": "0" * 43}
        statuses = set()
        for number in range(_WRONG_TOKENS):
            known["guess"] = f"{number:043}"
            with self._server.client("guess") as http:
                statuses.add(send(http, self._findings, "GET", "/v1/streams").status_code)
        self._findings.expect(statuses == {401, 429}, f"wrong tokens were answered with {statuses}")
        self.ask("stranger", 429, "GET", "/v1/streams")
        self.ask("bob", 200, "GET", "/v1/streams")


def _query(stream: str) -> dict[str, Any]:
    return {"plan": {"root": "in", "nodes": {"in": {"op": "source", "stream": stream}}}}
