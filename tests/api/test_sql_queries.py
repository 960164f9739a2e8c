"""Queries registered as SQL over HTTP: validation, errors with line and column, and plans written as SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.servers.running_server import RunningServer, running_server
from tests.support.services.query_service import HOT_PLAN, READINGS

HOT = "SELECT * FROM readings WHERE temp > 20"
# More than is planned on the event loop.
LARGE = f"SELECT {', '.join(f'temp + {n} AS c{n}' for n in range(200))} FROM Readings WHERE room <> 'it''s'"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as made:
        made.http.post("/v1/streams", json=READINGS).raise_for_status()
        yield made


def refused(server: RunningServer, **body: Any) -> dict[str, Any]:
    answer = server.http.post("/v1/queries", json=body)
    assert answer.status_code == 422, answer.text
    problem: dict[str, Any] = answer.json()
    return problem


def test_a_query_is_registered_with_sql_and_shown_as_sql(server: RunningServer) -> None:
    made = server.http.post("/v1/queries", json={"name": "hot", "sql": HOT})
    assert made.status_code == 201, made.text
    nodes = list(made.json()["spec"]["plan"]["nodes"].values())
    assert [node["op"] for node in nodes] == ["source", "select"]
    path = f"/v1/queries/{made.json()['id']}/plan"
    shown = server.http.get(path, params={"format": "sql"}).json()
    assert shown == {
        "query": made.json()["id"],
        "sql": HOT.replace(" F", "\nF").replace(" W", "\nW"),
        "running": None,
    }
    text = server.http.get(path, params={"format": "sql"}, headers={"accept": "text/plain"})
    assert text.headers["content-type"].startswith("text/plain")
    assert text.text == f"{shown['sql']};\n"
    assert server.http.get(path).json()["plan"]["nodes"]
    neither = server.http.get(path, params={"format": "sql"}, headers={"accept": "image/png"})
    assert neither.status_code == 406


@pytest.mark.parametrize("sql", [HOT, LARGE], ids=["small", "large"])
def test_sql_is_validated_and_its_plan_returned(server: RunningServer, sql: str) -> None:
    found = server.http.post("/v1/queries/validate", json={"sql": sql}).json()
    assert found["valid"], found
    root = found["plan"]["root"]
    columns = [field["name"] for field in found["schemas"][root]]
    assert columns == (["at", "room", "temp"] if sql is HOT else [f"c{n}" for n in range(200)])
    assert found["admission"]["admitted"]
    by_plan = server.http.post("/v1/queries/validate", json={"name": "q", "plan": found["plan"]}).json()
    assert by_plan == {**found, "plan": None}


@pytest.mark.parametrize("columns", ["*", LARGE[7 : LARGE.index(" FROM")]], ids=["small", "large"])
def test_errors_have_line_column_code_and_advice(server: RunningServer, columns: str) -> None:
    problem = refused(server, name="hot", sql=f"SELECT {columns}\n  FROM raedings")
    assert problem["code"] == "invalid_sql"
    (error,) = problem["errors"]
    assert error == {
        "pointer": "sql:2:8",
        "line": 2,
        "column": 8,
        "code": "unknown_stream",
        "detail": "there is no stream, table or query `raedings`; did you mean `readings`?",
    }
    found = server.http.post("/v1/queries/validate", json={"sql": f"SELECT {columns}\n  FROM raedings"})
    assert [(one["line"], one["column"]) for one in found.json()["errors"]] == [(2, 8)]


def test_a_query_has_a_plan_or_sql(server: RunningServer) -> None:
    both = refused(server, name="hot", plan=HOT_PLAN, sql=HOT)
    assert [error["code"] for error in both["errors"]] == ["plan_and_sql"]
    assert "leave one of them out" in both["detail"]
    neither = refused(server, name="hot")
    assert [error["detail"] for error in neither["errors"]] == ["'plan' or 'sql' is required"]
    number = refused(server, name="hot", sql=7)
    assert number["errors"][0]["detail"] == "'sql' must be the text of a SELECT, got 7"
    statement = refused(server, name="hot", sql="SHOW STREAMS")
    assert statement["errors"][0]["detail"].startswith("expected SELECT or WITH")


def test_errors_of_sql_and_of_the_rest_are_reported_together(server: RunningServer) -> None:
    problem = refused(server, name="hot", sql="SELECT nothing FROM readings", mode="sometimes")
    assert [error["pointer"] for error in problem["errors"]] == ["sql:1:8", "mode"]
    unknown = refused(server, name="hot", sql=HOT, **{"class": "none"})
    assert [error["code"] for error in unknown["errors"]] == ["unknown_class"]


def test_a_plan_of_a_stream_that_is_gone_is_not_written(server: RunningServer) -> None:
    server.http.post("/v1/streams", json={**READINGS, "name": "old"}).raise_for_status()
    made = server.http.post("/v1/queries", json={"name": "q", "sql": "SELECT room FROM old"}).json()
    server.http.patch(f"/v1/queries/{made['id']}", json={"state": "stopped"}).raise_for_status()
    server.http.delete("/v1/streams/old").raise_for_status()
    answer = server.http.get(f"/v1/queries/{made['id']}/plan", params={"format": "sql"})
    assert (answer.status_code, answer.json()["code"]) == (409, "plan_outdated")
