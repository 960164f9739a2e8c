"""Web pages of other sites cannot use a server: foreign hosts, origins and simple POSTs are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.support.servers.raw_http import UPGRADE, exchange
from tests.support.servers.readings import create, rows
from tests.support.servers.running_server import PATIENCE, RunningServer, running_server
from tests.support.servers.sensors import problem
from websockets.exceptions import InvalidStatus

from mavstream_server.api.access.addresses import AllowedAddresses
from mavstream_server.core.errors import Refused
from mavstream_server.core.settings import Settings

EVIL = "http://evil.example"
APP = "https://app.example.org"
COMPLETE = "/v1/streams/readings/complete"
TUPLES = "/v1/streams/readings/tuples"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as running:
        create(running)
        yield running


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    flags = ("--allow-host", "streams.example.org", "--allow-host", "*.lan", "--allow-origin", APP)
    with running_server(tmp_path_factory.mktemp("named"), *flags) as running:
        create(running)
        yield running


@pytest.mark.parametrize(
    ("bound", "allowed", "refused"),
    [
        (
            "127.0.0.1",
            [
                "localhost",
                "localhost:8000",
                "LOCALHOST",
                "127.0.0.1:1",
                "127.8.9.1",
                "[::1]:8000",
                "localhost.",
            ],
            ["evil.example", "localhost.evil.example", "192.168.1.4", "", "[::1", "a@localhost", "0.0.0.0"],
        ),
        ("192.168.1.4", ["192.168.1.4:80", "localhost"], ["192.168.1.5", "evil.example"]),
        ("streams.lan", ["streams.lan", "STREAMS.lan:9"], ["other.lan", "127.0.0.1.lan"]),
        ("0.0.0.0", ["0.0.0.0", "10.1.2.3:8000", "[fe80::1]"], ["evil.example", "streams.lan"]),
        ("::", ["10.1.2.3", "[::]:8000"], ["evil.example"]),
    ],
)
def test_a_server_knows_its_own_names(bound: str, allowed: list[str], refused: list[str]) -> None:
    addresses = AllowedAddresses(Settings(host=bound))
    assert [host for host in allowed if not addresses.allows_host(host)] == []
    assert [host for host in refused if addresses.allows_host(host)] == []


def test_origins_are_loopback_the_server_itself_or_named() -> None:
    addresses = AllowedAddresses(Settings(allow_origin=(APP,)))
    for origin in (
        "http://localhost:3000",
        "https://127.0.0.1",
        "http://[::1]:5",
        "http://own:1",
        APP,
        APP.upper(),
    ):
        assert addresses.allows_origin(origin, "own:1"), origin
    for origin in (
        EVIL,
        "null",
        "",
        f"{APP}:444",
        "https://x.app.example.org",
        "http://localhost.evil.example",
    ):
        assert not addresses.allows_origin(origin, "own:1"), origin
    assert AllowedAddresses(Settings(allow_origin=("*",))).allows_origin(EVIL, "own")


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("allow_host", "name:80"),
        ("allow_host", "http://x"),
        ("allow_origin", "x"),
        ("allow_origin", "http://x/y"),
    ],
)
def test_names_and_origins_that_could_never_match_are_refused(flag: str, value: str) -> None:
    with pytest.raises(Refused, match=f"--{flag.replace('_', '-')}: expected .*got '{value}'"):
        Settings.from_environment({}, **{flag: [value]})
    read = Settings.from_environment({f"MAVSTREAM_{flag.upper()}": "*, *"})
    assert getattr(read, flag) == ("*", "*")


def test_a_name_that_was_rebound_to_loopback_reaches_nothing(server: RunningServer) -> None:
    for method, path in (
        ("GET", "/v1/streams"),
        ("GET", "/livez"),
        ("POST", TUPLES),
        ("DELETE", "/v1/streams/x"),
    ):
        answer = server.http.request(method, path, headers={"host": "evil.example:8000"}, json=[])
        assert problem(answer) == (421, "unknown_host")
        assert "--allow-host" in answer.json()["detail"]
    status, body = exchange(server, UPGRADE.replace(b"localhost", b"evil.example"))
    assert (status, body["code"]) == (421, "unknown_host")


@pytest.mark.parametrize("hosts", [b"", b"Host: localhost\r\nHost: evil.example\r\n"])
def test_a_request_needs_exactly_one_host(server: RunningServer, hosts: bytes) -> None:
    status, body = exchange(server, b"GET /livez HTTP/1.1\r\n" + hosts + b"\r\n")
    assert (status, body["code"]) == (400, "invalid_host")


def test_pages_of_other_sites_open_no_websocket(server: RunningServer) -> None:
    for path in ("/v1/feed", "/v1/queries/q/results", "/nowhere"):
        for origin in (EVIL, "null"):
            with pytest.raises(InvalidStatus) as refused:
                server.websocket(path, origin=origin)
            body = json.loads(refused.value.response.body)
            assert (refused.value.response.status_code, body["code"]) == (403, "foreign_origin")
    with server.websocket("/v1/feed", origin="http://localhost:3000") as socket:
        socket.send(json.dumps({"type": "hello", "producer": "p"}))
        assert json.loads(socket.recv(timeout=PATIENCE))["type"] == "welcome"


def test_pages_of_other_sites_change_nothing(server: RunningServer) -> None:
    for method, path in (
        ("POST", TUPLES),
        ("PUT", "/v1/classes/a"),
        ("PATCH", "/v1/queries/q"),
        ("DELETE", "/v1/x"),
    ):
        answer = server.http.request(method, path, json=rows(0, 1), headers={"origin": EVIL})
        assert problem(answer) == (403, "foreign_origin")
    assert server.http.get("/v1/streams/readings").json()["position"] == 0


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "text/plain;charset=UTF-8", "multipart/form-data; boundary=x"]
)
def test_a_post_that_needs_no_preflight_is_refused(server: RunningServer, kind: str | None) -> None:
    for path in (COMPLETE, TUPLES, "/v1/queries", "/v1/queries/validate"):
        answer = server.http.post(path, headers={"content-type": kind} if kind else {})
        assert problem(answer) == (415, "unsupported_media_type")
        assert "Content-Type: application/json" in answer.json()["detail"]
    assert server.http.post(TUPLES, json=[]).status_code == 200, "the stream is not complete"


def test_answers_carry_no_cors_headers_unless_allowed(server: RunningServer, named: RunningServer) -> None:
    asked = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    for answer in (
        server.http.get("/v1/streams", headers={"origin": EVIL}),
        server.http.options("/v1/streams", headers=asked),
        named.http.get("/v1/streams", headers={"origin": EVIL}),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control-allow")]
    answer = named.http.get("/v1/streams", headers={"origin": APP})
    assert answer.headers["access-control-allow-origin"] == APP
    preflight = named.http.options(
        "/v1/streams",
        headers={**asked, "origin": APP, "access-control-request-headers": "authorization,content-type"},
    )
    assert preflight.headers["access-control-allow-origin"] == APP
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()


def test_named_hosts_and_origins_are_accepted(named: RunningServer) -> None:
    for host in ("streams.example.org", "Streams.Example.org:443", "a.b.lan"):
        assert named.http.get("/livez", headers={"host": host}).status_code == 200
    assert problem(named.http.get("/livez", headers={"host": "lan"})) == (421, "unknown_host")
    answer = named.http.post(TUPLES, json=rows(0, 1), headers={"origin": APP})
    assert answer.status_code == 200
    with named.websocket("/v1/feed", origin=APP):
        pass
