"""Who may run which statement: whoever may use the route that does the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.servers.running_server import eventually
from tests.support.servers.sensors import problem
from tests.support.servers.tenants import Tenants, tenants

TOKENS = {
    "client": ("--role", "client", "--streams", "a_*", "--classes", "default"),
    "feeder": ("--role", "feeder", "--streams", "a_*"),
}
PLAN = {"root": "in", "nodes": {"in": {"op": "source", "stream": "a"}}}
# A statement and the request that does the same, which is sent to objects that are not there if it can be.
SAME: list[tuple[str, str, str, Any]] = [
    ("SHOW STREAMS", "GET", "/v1/streams", None),
    ("SHOW QUERIES", "GET", "/v1/queries", None),
    ("DESCRIBE a_one", "GET", "/v1/streams/a_one", None),
    ("SELECT * FROM a_one", "POST", "/v1/queries/validate", PLAN),
    ("DROP STREAM none", "DELETE", "/v1/streams/none", None),
    ("DROP TABLE none", "DELETE", "/v1/tables/none", None),
    ("DROP QUERY none", "DELETE", "/v1/queries/none", None),
    ("PAUSE QUERY none", "PATCH", "/v1/queries/none", {"state": "paused"}),
    ("CREATE CLASS other PRIORITY 2", "PUT", "/v1/classes/other", {"name": "other", "priority": 2}),
    ("SET SCHEDULER rr", "PUT", "/v1/scheduler", {"policy": "rr"}),
    (
        "CREATE STREAM b (n int)",
        "POST",
        "/v1/streams",
        {"name": "b", "fields": [{"name": "n", "type": "int"}]},
    ),
    ("INSERT INTO a_one VALUES (1)", "POST", "/v1/streams/a_one/tuples", [{"n": 1}]),
    ("INSERT INTO shared VALUES (1)", "POST", "/v1/streams/shared/tuples", [{"n": 1}]),
    (
        "CREATE QUERY q AS SELECT * FROM shared",
        "POST",
        "/v1/queries",
        {"name": "q", "sql": "SELECT * FROM shared"},
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    with tenants(tmp_path_factory.mktemp("site"), TOKENS) as running:
        script = "CREATE STREAM a_one (n int); CREATE STREAM shared (n int); CREATE CLASS alarms PRIORITY 5"
        running.server.http.post("/v1/sql", json={"sql": script}).raise_for_status()
        yield running


@pytest.mark.parametrize("same", SAME, ids=lambda same: same[0])
@pytest.mark.parametrize("who", ["client", "feeder"])
def test_a_statement_is_allowed_where_its_route_is(site: Tenants, who: str, same: Any) -> None:
    statement, method, path, body = same
    by_sql = site.ask(who, "POST", "/v1/sql", json={"sql": statement})
    by_route = site.ask(who, method, path, **({} if body is None else {"json": body}))
    assert (by_sql.status_code == 403) == (by_route.status_code == 403), (by_sql.text, by_route.text)
    if by_sql.status_code == 403:
        assert by_sql.json()["detail"] == by_route.json()["detail"]


def test_nobody_uses_sql_without_a_token(site: Tenants) -> None:
    site.server.http.headers.pop("authorization")
    try:
        answer = site.server.http.post("/v1/sql", json={"sql": "SHOW STREAMS"})
    finally:
        site.server.http.headers["authorization"] = f"Bearer {site.secrets['root']}"
    assert problem(answer) == (401, "not_authorised")


def test_owners_and_classes_count(site: Tenants) -> None:
    made = site.ask("client", "POST", "/v1/sql", json={"sql": "CREATE QUERY mine AS SELECT * FROM a_one"})
    assert made.status_code == 200, made.text
    (query,) = made.json()["results"]
    assert site.ask("root", "GET", f"/v1/queries/{query['id']}").json()["owner"] == "client"
    alarm = "CREATE QUERY alarm WITH (class = 'alarms') AS SELECT * FROM a_one"
    assert problem(site.ask("client", "POST", "/v1/sql", json={"sql": alarm})) == (403, "forbidden")
    root = site.ask("root", "POST", "/v1/sql", json={"sql": "CREATE QUERY theirs AS SELECT * FROM a_one"})
    assert root.status_code == 200
    assert problem(site.ask("client", "POST", "/v1/sql", json={"sql": "DROP QUERY theirs"})) == (
        403,
        "forbidden",
    )


def test_statements_are_audited_as_their_routes(
    site: Tenants, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = "SHOW STREAMS; CREATE STREAM a_audited (n int); CREATE CLASS mine PRIORITY 9"
    assert site.ask("client", "POST", "/v1/sql", json={"sql": script}).status_code == 403
    expected = [
        ("POST", "/v1/streams", "client", 200),
        ("PUT", "/v1/classes/mine", "client", 403),
        ("POST", "/v1/sql", "client", 403),
    ]

    def last() -> list[dict[str, Any]]:
        log = (site.server.data / "audit.jsonl").read_text()
        return [json.loads(line) for line in log.splitlines()][-3:]

    def shown() -> list[tuple[Any, ...]]:
        return [(e["action"], e["object"], e["token"], e["status"]) for e in last()]

    # A request is recorded once its answer has been sent.
    eventually(lambda: shown() == expected, "the last event")
    assert last()[1]["by"] == "/v1/sql"
