"""The OpenAPI document has every route, and a fuzzer finds no undocumented answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attack.fuzz.schemathesis import HOOKS
from tests.support.scale import scaled
from tests.support.servers.running_server import RunningServer, running_server

ROUTES = """
    POST /v1/streams                  GET /v1/streams              GET /v1/streams/{name}
    DELETE /v1/streams/{name}         POST /v1/streams/{name}/tuples
    POST /v1/streams/{name}/complete  PUT /v1/classes/{name}       GET /v1/classes/{name}
    DELETE /v1/classes/{name}         PUT /v1/queries/{id}
    GET /v1/classes                   POST /v1/queries             GET /v1/queries
    GET /v1/queries/{id}              PATCH /v1/queries/{id}       DELETE /v1/queries/{id}
    POST /v1/queries/try              POST /v1/queries/validate    GET /v1/queries/{id}/plan
    GET /v1/queries/{id}/results      GET /v1/streams/{name}/tuples
    GET /v1/queries/{id}/qos          GET /v1/policies             GET /v1/scheduler
    PUT /v1/scheduler                 GET /v1/plan                 GET /v1/stats
    GET /v1/info                      GET /v1/feed                 GET /livez
    GET /readyz                       GET /metrics                 GET /v1/scheduler/trace
    PUT /v1/tables/{name}             GET /v1/tables/{name}        DELETE /v1/tables/{name}
    GET /v1/tables                    GET /v1/optimizer            PUT /v1/optimizer
    PATCH /v1/streams/{name}          PUT /v1/queries/{id}/run     POST /v1/queries/{id}/results
    GET /v1/producers                 DELETE /v1/producers/{name}  POST /v1/sql
    GET /v1/streams/{name}/stages     PUT /v1/streams/{name}/stages/{stage}
    POST /v1/streams/{name}/batches   DELETE /v1/streams/{name}/stages/{stage}
    GET /v1/optimizer/decisions
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def document(server: RunningServer) -> dict[str, Any]:
    made: dict[str, Any] = server.http.get("/openapi.json").json()
    return made


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_route_of_the_design_is_documented(document: dict[str, Any]) -> None:
    words = ROUTES.split()
    wanted = {f"{method} {path}" for method, path in zip(words[::2], words[1::2], strict=True)}
    assert {name for name, _ in operations(document)} == wanted


def test_every_operation_has_a_description_and_its_errors(document: dict[str, Any]) -> None:
    known = {tag["name"] for tag in document["tags"]}
    names = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(names)) == len(names)
    for name, operation in operations(document):
        assert operation["description"], name
        assert set(operation["tags"]) <= known, name
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                schema = response["content"]["application/problem+json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}, (name, status)
        if " /v1/" in name:
            assert {"401", "403"} <= set(operation["responses"]), name
        if "requestBody" in operation:
            assert {"400", "413", "415", "422"} <= set(operation["responses"]), name


def test_creations_link_to_the_operations_on_what_they_created(document: dict[str, Any]) -> None:
    links = document["paths"]["/v1/queries"]["post"]["responses"]["201"]["links"]
    assert set(links) == {
        *("show_query", "put_query", "change_query", "remove_query", "show_plan", "show_qos", "pull_results"),
        *("report_run", "publish_results"),
    }
    assert {each["parameters"]["id"] for each in links.values()} == {"$response.body#/id"}
    table = document["paths"]["/v1/tables/{name}"]["put"]["responses"]["201"]["links"]
    assert set(table) == {"show_table", "put_table", "remove_table"}


def test_request_bodies_have_examples(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name in ("StreamSpec", "QuerySpec", "QueryClass"):
        assert schemas[name]["examples"], name
    for name in ("Problem", "FromProducer", "ToProducer", "ToSubscriber"):
        assert schemas[name], name


def test_a_fuzzer_finds_no_server_error_and_no_undocumented_answer(
    server: RunningServer, tmp_path: Path
) -> None:
    fields = [
        {"name": "at", "type": "timestamp"},
        {"name": "home", "type": "string"},
        {"name": "temperature", "type": "float", "nullable": True},
    ]
    server.http.post("/v1/streams", json={"name": "readings", "fields": fields, "event_time": "at"})
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{server.url}/openapi.json"]
    command += ["--checks", checks, "--phases", "examples,coverage,fuzzing", "--continue-on-failure"]
    command += ["--max-examples", str(scaled(5, 100)), "--max-time", str(scaled(15, 300)), "--seed", "1"]
    command += ["--generation-database", "none", "--request-timeout", "20", "--warnings", "off", "--no-color"]
    # It answers after the requested seconds, up to a minute; see test_scheduler_trace.
    command += ["--exclude-path", "/v1/scheduler/trace"]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, **HOOKS},
        capture_output=True,
        text=True,
        timeout=scaled(120, 600),
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert not [event for event in server.events() if event["level"] == "error"]
    assert server.http.get("/v1/stats").json()["engine_restarts"] == 0
