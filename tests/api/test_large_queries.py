"""Large queries over HTTP: what is accepted, what is refused, and with which errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.running_server import RunningServer, eventually, running_server
from tests.support.services.query_service import HOT_PLAN, READINGS

from mavstream_protocol.wire.resources import Validation

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as made:
        made.http.post("/v1/streams", json=READINGS).raise_for_status()
        yield made


def test_the_process_that_plans_is_started_before_the_first_large_query(server: RunningServer) -> None:
    def started() -> bool:
        # A child belongs to the thread that started it.
        lists = [file.read_text() for file in Path(f"/proc/{server.pid}/task").glob("*/children")]
        children = [pid for pids in lists for pid in pids.split()]
        return any("spawn_main" in Path(f"/proc/{pid}/cmdline").read_text() for pid in children)

    assert eventually(started, "the process that plans")


def projects(count: int, columns: int = 256) -> dict[str, Any]:
    nodes: dict[str, Any] = {"in": {"op": "source", "stream": "readings"}}
    for level in range(count):
        compute = {f"c{n}": f"c{n} + 1" if level else "temp" for n in range(columns)}
        below = f"p{level - 1}" if level else "in"
        nodes[f"p{level}"] = {"op": "project", "input": below, "compute": compute}
    return {"root": f"p{count - 1}", "nodes": nodes}


def test_a_large_query_is_validated_registered_and_removed(server: RunningServer) -> None:
    plan = projects(8)
    found = Validation.model_validate(server.http.post("/v1/queries/validate", json=plan).json())
    assert found.valid
    assert [field.name for field in found.schemas["p7"]] == [f"c{n}" for n in range(256)]
    made = server.http.post("/v1/queries", json={"name": "large", "plan": plan})
    assert made.status_code == 201, made.text
    assert made.json()["spec"]["plan"]["root"] == "p7"
    assert server.http.delete(f"/v1/queries/{made.json()['id']}").status_code == 204


def test_a_plan_of_too_many_columns_is_an_error_of_the_plan(server: RunningServer) -> None:
    found = server.http.post("/v1/queries/validate", json=projects(200)).json()
    assert not found["valid"]
    assert [error["code"] for error in found["errors"]] == ["plan_too_large"]
    refused = server.http.post("/v1/queries", json={"name": "q", "plan": projects(200)})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_query")
    assert refused.json()["errors"][0]["pointer"] == "plan"


@pytest.mark.parametrize("path", ["/v1/queries", "/v1/queries/validate"])
def test_a_body_that_is_too_long_is_refused_unread(server: RunningServer, path: str) -> None:
    refused = server.http.post(path, content=b"[" * ((1 << 20) + 1), headers=JSON)
    assert refused.status_code == 422, refused.text
    assert refused.json()["errors"][0]["code"] == "plan_too_large"


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_body_that_is_not_json_is_refused_whatever_its_size(server: RunningServer, size: int) -> None:
    refused = server.http.post("/v1/queries/validate", content=b"[1" + b" " * size, headers=JSON)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_json")


def test_other_bodies_may_be_long(server: RunningServer) -> None:
    id_ = server.http.post("/v1/queries", json={"name": "q", "plan": HOT_PLAN}).json()["id"]
    body = b'{"state": "paused"' + b" " * 100_000 + b"}"
    changed = server.http.patch(f"/v1/queries/{id_}", content=body, headers=JSON)
    assert changed.json()["desired"] == "paused", changed.text
