"""Queries that read each other, and derived streams, over the interfaces of a real server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.servers.readings import create, plan, pull, register, rows
from tests.support.servers.running_server import RunningServer, eventually, running_server

from mavstream import Client, query, stream


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture
def server(running: RunningServer) -> Iterator[RunningServer]:
    """A server with a stream and no query."""
    create(running)
    yield running
    for _ in range(3):  # those that are read cannot be removed before their readers
        for one in running.http.get("/v1/queries").json()["items"]:
            running.http.delete(f"/v1/queries/{one['id']}")
    running.clear()


def above(name: str, where: str, kind: str = "query") -> dict[str, Any]:
    return {
        "root": "out",
        "nodes": {
            "in": {"op": "source", kind: name},
            "out": {"op": "select", "input": "in", "where": where},
        },
    }


def feed(server: RunningServer, start: int, stop: int) -> None:
    answer = server.http.post("/v1/streams/readings/tuples", json=rows(start, stop))
    assert answer.status_code == 200, answer.text


def test_a_query_reads_the_results_of_another_from_its_start_or_from_the_earliest(
    server: RunningServer,
) -> None:
    low = register(server, name="even", plan=plan("n % 2 = 0"))
    feed(server, 0, 10)
    pull(server, low, 5)
    late = register(server, name="late", plan=above("even", "n > 2"))
    early = register(server, name="early", plan=above("even", "n > 2"), **{"from": "earliest"})
    feed(server, 10, 20)
    assert [row["n"] for row in pull(server, early, 8)] == [4, 6, 8, 10, 12, 14, 16, 18]
    assert [row["n"] for row in pull(server, late, 5)] == [10, 12, 14, 16, 18]


@pytest.mark.parametrize("equal_queries", [1, 2], ids=["alone", "shared"])
def test_windows_over_results_close_though_the_query_below_lets_no_more_rows_through(
    server: RunningServer, equal_queries: int
) -> None:
    fields = [{"name": "ts", "type": "timestamp"}, {"name": "n", "type": "int"}]
    create(server, name="timed", fields=fields, event_time="ts")
    hot = plan("n > 10", "timed")
    for number in range(equal_queries):
        register(server, name=f"hot{number}", plan=hot)
    window = {"kind": "tumbling", "size": "1s"}
    counts = {"op": "aggregate", "input": "in", "window": window, "compute": {"n": "count(*)"}}
    source = {"op": "source", "query": "hot0"}

    def append(*seconds_and_values: tuple[float, int]) -> None:
        sent = [{"ts": int(at * 1_000_000), "n": n} for at, n in seconds_and_values]
        assert server.http.post("/v1/streams/timed/tuples", json=sent).status_code == 200

    append((0.5, 20))
    pull(server, "hot0", 1)
    above_it = {"root": "n", "nodes": {"in": source, "n": counts}}
    counted = register(server, name="counted", plan=above_it, **{"from": "earliest"})
    append((1.2, 5), (1.7, 20), (1.8, 30))
    append((3.1, 5))
    assert [row["n"] for row in pull(server, counted, 2)] == [1, 2]


def test_what_is_read_is_shown_and_cannot_be_removed(server: RunningServer) -> None:
    low = register(server, name="even", plan=plan("n % 2 = 0"))
    high = register(server, name="high", plan=above("even", "n > 2"))
    info = server.http.get(f"/v1/queries/{low}").json()
    assert info["read_by"] == [high]
    assert server.http.get(f"/v1/queries/{high}").json()["reads"] == [low]
    edges = server.http.get(f"/v1/queries/{high}/plan").json()["edges"]
    assert {"from": "query:even", "to": "in", "output": None} in edges
    (placed,) = [one for one in server.http.get("/v1/plan").json()["queries"] if one["query"] == high]
    assert placed["reads"] == {"even": low}
    refused = server.http.delete(f"/v1/queries/{low}")
    assert (refused.status_code, refused.json()["code"]) == (409, "query_in_use")
    assert f"'{high}'" in refused.json()["detail"]
    assert server.http.delete(f"/v1/queries/{high}").status_code == 204
    assert server.http.delete(f"/v1/queries/{low}").status_code == 204


def test_plans_and_traces_show_the_chain_below_a_query(server: RunningServer) -> None:
    low = register(server, name="even", plan=plan("n % 2 = 0"))
    middle = register(server, name="middle", plan=above("even", "n > 2"))
    high = register(server, name="high", plan=above("middle", "n > 4"))
    server.http.patch(f"/v1/queries/{middle}", json={"state": "paused"})
    feed(server, 0, 10)
    pull(server, low, 5)
    feed(server, 10, 20)
    pull(server, low, 10)

    def chain() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = server.http.get(f"/v1/queries/{high}/plan").json()["chain"]
        return found

    paused = chain()
    assert [(one["query"], one["name"], one["class"]) for one in paused] == [
        (low, "even", "default"),
        (middle, "middle", "default"),
    ]
    assert [one["reads"] for one in paused] == [["stream:readings"], ["query:even"]]
    assert [one["state"] for one in paused] == ["running", "paused"]
    assert [(one["results"], one["read"]) for one in paused] == [(10, None), (0, 0)]
    assert server.http.get(f"/v1/queries/{low}/plan").json()["chain"] == []
    server.http.patch(f"/v1/queries/{middle}", json={"state": "running"})
    with ThreadPoolExecutor(1) as pool:
        traced = pool.submit(server.http.get, "/v1/scheduler/trace", params={"seconds": 1})
        eventually(lambda: tracing(server), "the trace to begin")
        feed(server, 20, 30)
        pull(server, high, 5)
        trace = traced.result().json()
    assert {middle, high} & {one["query"] for one in trace["slices"]}
    assert trace["reads"].items() <= {middle: [low], high: [middle]}.items()
    eventually(lambda: [one["read"] for one in chain()] == [15, 5], "positions to be reported")
    low_ms, middle_ms = (one["latency_ms"] for one in chain())
    assert low_ms["count"] == 15
    assert middle_ms["count"] == 5
    # Each counts from the arrival in the stream.
    high_ms = server.http.get(f"/v1/queries/{high}").json()["latency_ms"]
    assert high_ms["max"] >= middle_ms["p50"] > 0


def tracing(server: RunningServer) -> bool:
    """Whether a trace is recorded: there can only be one."""
    return server.http.get("/v1/scheduler/trace", params={"seconds": 0.1}).status_code == 409


def test_the_end_of_a_query_ends_those_that_read_it(server: RunningServer) -> None:
    low = register(server, name="even", plan=plan("n % 2 = 0"))
    high = register(server, name="high", plan=above("even", "n > 2"))
    feed(server, 0, 10)
    pull(server, high, 3)
    server.http.patch(f"/v1/queries/{low}", json={"state": "stopped"})
    eventually(
        lambda: server.http.get(f"/v1/queries/{high}").json()["state"] == "finished", "the end of the reader"
    )
    spec = {"name": "later", "plan": above("even", "n > 2")}
    refused = server.http.post("/v1/queries", json=spec)
    assert (refused.status_code, refused.json()["code"]) == (409, "upstream_ended")
    later = register(server, **spec, **{"from": "earliest"})
    assert [row["n"] for row in pull(server, later, 3)] == [4, 6, 8]
    eventually(
        lambda: server.http.get(f"/v1/queries/{later}").json()["state"] == "finished", "the end of the log"
    )


def test_results_that_are_unknown_or_not_in_order_are_refused(server: RunningServer) -> None:
    register(server, name="even", plan=plan("n % 2 = 0"))
    both = {
        "root": "all",
        "nodes": {
            "a": {"op": "source", "stream": "readings"},
            "b": {"op": "source", "query": "even"},
            "all": {"op": "union", "inputs": ["a", "b"]},
        },
    }
    register(server, name="mixed", plan=both)
    firsts = {
        "root": "n",
        "nodes": {
            "in": {"op": "source", "query": "mixed"},
            "n": {
                "op": "aggregate",
                "input": "in",
                "window": {"kind": "tumbling", "size": 2},
                "compute": {"n": "count(*)"},
            },
        },
    }
    for wrong, code in (
        (firsts, "order_required"),
        (above("evn", "n > 2"), "unknown_query"),
        (above("readings", "n > 2"), "unknown_query"),
        (above("even", "n > 2", "stream"), "unknown_stream"),
    ):
        answer = server.http.post("/v1/queries", json={"name": "wrong", "plan": wrong})
        assert answer.status_code == 422, answer.text
        assert [item["code"] for item in answer.json()["errors"]] == [code]


def test_a_derived_stream_is_listed_read_and_removed_like_a_stream(server: RunningServer) -> None:
    low = register(server, name="even", plan=plan("n % 2 = 0"), derive=True)
    listed = {one["name"]: one for one in server.http.get("/v1/streams").json()["items"]}
    assert list(listed) == ["even", "readings"]
    assert listed["even"]["spec"]["derived_from"] == low
    assert [field["name"] for field in listed["even"]["spec"]["fields"]] == [
        "n",
        "home",
        "temperature",
        "open",
    ]
    high = register(server, name="high", plan=above("even", "n > 2", "stream"))
    feed(server, 0, 10)
    assert [row["n"] for row in pull(server, high, 3)] == [4, 6, 8]
    assert server.http.post("/v1/streams/even/tuples", json=rows(0, 1)).status_code == 404
    assert server.http.delete("/v1/streams/even").json()["code"] == "query_in_use"
    server.http.delete(f"/v1/queries/{high}")
    assert server.http.delete("/v1/streams/even").status_code == 204
    assert server.http.get("/v1/streams/even").status_code == 404


def test_the_client_library_builds_chains_and_reads_derived_streams(server: RunningServer) -> None:
    with Client(server.url) as client:
        client.submit(stream("readings").where("n % 2 = 0"), name="even", derive=True)
        high = client.submit(query("even").where("n > 2"), name="high")
        feed(server, 0, 10)
        assert [row["n"] for row in pull(server, high.id, 3)] == [4, 6, 8]
        assert [one.name for one in client.streams()] == ["even", "readings"]


def test_a_chain_goes_on_after_the_server_was_killed(tmp_path: Any) -> None:
    with running_server(tmp_path) as server:
        create(server)
        low = register(server, name="even", plan=plan("n % 2 = 0"))
        high = register(server, name="high", plan=above("even", "n > 2"))
        feed(server, 0, 10)
        pull(server, high, 3)
        server.kill()
    with running_server(tmp_path) as server:
        feed(server, 10, 20)
        assert [row["n"] for row in pull(server, high, 8)] == [4, 6, 8, 10, 12, 14, 16, 18]
        for id_ in (low, high):
            assert server.http.get(f"/v1/queries/{id_}").json()["epoch"] == 1
