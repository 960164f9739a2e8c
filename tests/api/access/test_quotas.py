"""Quotas of tokens: queries, their memory, rows per second and connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.support.servers.running_server import RawProducer, closed_with, eventually
from tests.support.servers.sensors import PLAN, SENSORS, STREAM, TUPLES, problem
from tests.support.servers.tenants import Tenants, tenants

from mavstream_server.api.access.quotas import RowRate

TOKENS = {
    "few": ("--role", "client", "--queries", "1"),
    "small": ("--role", "client", "--state", "20KB"),
    "slow": ("--role", "feeder", "--rows-per-second", "100"),
    "lonely": ("--role", "feeder", "--connections", "2"),
}
WINDOW = {
    "root": "counts",
    "nodes": {
        "in": {"op": "source", "stream": "sensors"},
        "counts": {
            "op": "aggregate",
            "input": "in",
            "by": ["n"],
            "compute": {"c": "count(*)"},
            "window": {"kind": "tumbling", "size": "1h"},
        },
    },
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    with tenants(tmp_path_factory.mktemp("site"), TOKENS) as running:
        assert running.server.http.post(STREAM, json=SENSORS).status_code == 201
        yield running


def rows(count: int) -> list[dict[str, Any]]:
    return [{"n": n, "x": 0.5, "t": "x" * 50} for n in range(count)]


def test_a_rate_slows_down_by_as_much_as_was_sent() -> None:
    now = 0.0
    rate = RowRate(100, lambda: now)
    assert rate.take(100) == 0
    assert rate.take(50) == 0.5
    now = 0.25
    assert rate.wait == 0.25
    now = 100.0
    assert (rate.wait, rate.take(200)) == (0, 1.0), "no more than a second is saved up"


def test_a_token_has_at_most_its_queries(site: Tenants) -> None:
    first = site.ask("few", "POST", "/v1/queries", json={"plan": PLAN})
    assert first.status_code == 201
    second = site.ask("few", "POST", "/v1/queries", json={"plan": PLAN})
    assert problem(second) == (429, "token_queries")
    assert site.server.http.post("/v1/queries", json={"plan": PLAN}).status_code == 201
    assert site.ask("few", "DELETE", f"/v1/queries/{first.json()['id']}").status_code == 204
    assert site.ask("few", "POST", "/v1/queries", json={"plan": PLAN}).status_code == 201


def test_the_query_that_holds_most_ends_if_its_owner_holds_too_much(site: Tenants) -> None:
    ids = {}
    for name, plan in (("idle", PLAN), ("large", WINDOW)):
        answer = site.ask("small", "POST", "/v1/queries", json={"name": name, "plan": plan})
        assert answer.status_code == 201, answer.text
        ids[name] = answer.json()["id"]
    other = site.server.http.post("/v1/queries", json={"name": "other", "plan": WINDOW}).json()["id"]
    assert site.server.http.post(TUPLES, json=rows(5000)).status_code == 200

    def info(id_: str) -> dict[str, Any]:
        found: dict[str, Any] = site.server.http.get(f"/v1/queries/{id_}").json()
        return found

    eventually(lambda: info(ids["large"])["state"] == "failed", "the large query to end")
    assert "token 'small'" in info(ids["large"])["reason"]
    assert (info(ids["idle"])["state"], info(other)["state"]) == ("running", "running")


def test_a_feed_beyond_its_rate_is_slowed_down_and_a_request_refused(site: Tenants) -> None:
    assert site.ask("slow", "POST", TUPLES, json=rows(150)).status_code == 200
    refused = site.ask("slow", "POST", TUPLES, json=rows(1))
    assert problem(refused) == (429, "row_rate")
    before = site.server.http.get(f"{STREAM}/sensors").json()["position"]
    with RawProducer(site.server, "slow_one", **site.header("slow")) as producer:
        for sequence in range(1, 4):
            producer.rows("sensors", sequence, rows(50))
        producer.acked("sensors", 3)
    assert site.server.http.get(f"{STREAM}/sensors").json()["position"] == before + 150, "none is lost"


def test_a_token_has_at_most_its_connections(site: Tenants) -> None:
    with ExitStack() as stack:
        for name in ("l1", "l2"):
            stack.enter_context(RawProducer(site.server, name, **site.header("lonely")))
        assert problem(site.ask("lonely", "GET", STREAM)) == (429, "token_connections")
        with site.server.websocket("/v1/feed", **site.header("lonely")) as third:
            assert closed_with(third)[0] == 4429
        assert site.ask("slow", "GET", STREAM).status_code == 200
    eventually(lambda: site.ask("lonely", "GET", STREAM).status_code == 200, "its connections to be closed")
