"""Tokens and roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.servers.readings import create
from tests.support.servers.running_server import PATIENCE, RunningServer, closed_with, running_server
from websockets.sync.client import ClientConnection

from mavstream_protocol.wire.subprotocols import SUBPROTOCOL, encode_token

ROLES = {
    "admin": "root-secret-of-tests",
    "client": "reader-secret-of-tests",
    "feeder": "writer-secret-of-tests",
}
TOKENS = {"MAVSTREAM_TOKENS": ",".join(f"{role}:{token}" for role, token in ROLES.items())}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data = tmp_path_factory.mktemp("guarded")
    with running_server(data, "--host", "0.0.0.0", token="root-secret-of-tests", env=TOKENS) as running:
        create(running)
        yield running


@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    [
        ("GET", "/v1/streams", None, {"client", "feeder"}),
        ("POST", "/v1/streams/readings/tuples", [], {"feeder"}),
        ("GET", "/v1/streams/readings/tuples", None, {"client"}),
        ("PATCH", "/v1/streams/none", {}, {"client", "feeder"}),
        ("GET", "/v1/streams/readings/stages", None, {"client", "feeder"}),
        ("PUT", "/v1/streams/none/stages/s", [], {"feeder"}),
        ("DELETE", "/v1/streams/readings/stages/none", None, {"feeder"}),
        ("POST", "/v1/streams/readings/batches", {}, {"feeder"}),
        ("POST", "/v1/queries/validate", {}, {"client", "feeder"}),
        ("GET", "/v1/queries/none/results", None, {"client"}),
        ("PUT", "/v1/classes/default", {"name": "default"}, set()),
        ("DELETE", "/v1/classes/unknown", None, set()),
        ("PUT", "/v1/queries/none", {}, {"client"}),
        ("PUT", "/v1/scheduler", {"policy": "rr"}, set()),
        ("GET", "/v1/scheduler/trace?seconds=0.001", None, {"client", "feeder"}),
        ("PUT", "/v1/optimizer", {}, set()),
        ("GET", "/v1/optimizer/decisions", None, {"client", "feeder"}),
        ("DELETE", "/v1/streams/none", None, set()),
        ("GET", "/metrics", None, {"client", "feeder"}),
        ("GET", "/v1/info", None, {"client", "feeder"}),
        ("GET", "/openapi.json", None, {"client", "feeder"}),
        ("GET", "/docs", None, {"client", "feeder"}),
        ("GET", "/v1/producers", None, {"client", "feeder"}),
        ("DELETE", "/v1/producers/none", None, {"feeder"}),
    ],
)
def test_roles_allow_only_their_own_operations(
    guarded: RunningServer, method: str, path: str, body: Any, allowed: set[str]
) -> None:
    for role, token in ROLES.items():
        answer = guarded.http.request(method, path, json=body, headers={"authorization": f"Bearer {token}"})
        if role == "admin" or role in allowed:
            assert answer.status_code not in (401, 403), (role, answer.text)
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
            assert "role" in answer.json()["detail"]
    for wrong in ({"authorization": "Bearer nothing"}, {"authorization": "Basic x"}, {"authorization": ""}):
        answer = guarded.http.request(method, path, json=body, headers=wrong)
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authorised")
        assert answer.headers["www-authenticate"].startswith("Bearer")


def opened(server: RunningServer, path: str, token: str | None) -> ClientConnection:
    """Open a websocket as a browser does: without headers, and the token as a subprotocol."""
    offered = [SUBPROTOCOL, *([] if token is None else [encode_token(token)])]
    return server.websocket(path, additional_headers={}, subprotocols=offered)


def test_websockets_accept_the_token_as_a_subprotocol(guarded: RunningServer) -> None:
    with opened(guarded, "/v1/feed", "writer-secret-of-tests") as socket:
        assert socket.subprotocol == SUBPROTOCOL, "the token is not repeated"
        socket.send(json.dumps({"type": "hello", "producer": "p"}))
        assert json.loads(socket.recv(timeout=PATIENCE))["type"] == "welcome"
    for path, token, code in [
        ("/v1/feed", None, 4401),
        ("/v1/feed", "guess-secret", 4401),
        ("/v1/feed", "reader-secret-of-tests", 4403),
        ("/v1/queries/none/results", "writer-secret-of-tests", 4403),
        ("/v1/queries/none/results", "reader-secret-of-tests", 4404),
    ]:
        with opened(guarded, path, token) as socket:
            assert closed_with(socket)[0] == code, (path, token)
    with guarded.websocket("/v1/feed", additional_headers={}, subprotocols=["mavstream.bearer.!"]) as socket:
        assert closed_with(socket)[0] == 4401


def test_a_token_in_the_url_is_refused_unless_asked_for(guarded: RunningServer, tmp_path: Path) -> None:
    path, nobody = "/v1/feed?token=writer-secret-of-tests", {"additional_headers": {}}
    with guarded.websocket(path, **nobody) as socket:
        code, reason = closed_with(socket)
        assert (code, "Authorization: Bearer" in reason) == (4401, True)
    with (
        running_server(tmp_path, "--query-token", token="root-secret-of-tests", env=TOKENS) as server,
        server.websocket(path, **nobody) as socket,
    ):
        socket.send(json.dumps({"type": "hello", "producer": "p"}))
        assert json.loads(socket.recv(timeout=PATIENCE))["type"] == "welcome"


def test_health_needs_no_token_and_no_token_is_logged(guarded: RunningServer) -> None:
    bare = httpx.get(f"{guarded.url}/readyz", timeout=PATIENCE)
    assert bare.status_code == 200
    assert httpx.get(f"{guarded.url}/livez", timeout=PATIENCE).status_code == 200
    with guarded.websocket("/v1/feed?token=guess-secret", additional_headers={}) as socket:
        closed_with(socket)
    assert not [line for line in guarded.log if "secret" in line]
