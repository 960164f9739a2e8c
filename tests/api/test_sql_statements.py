"""SQL statements over HTTP: what each does and answers, and where a script stops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter
from tests.support.servers.running_server import RunningServer, eventually, running_server

from mavstream_protocol.sql.statements import Statement
from mavstream_protocol.wire.sql import SqlAnswer, SqlProblem, SqlResult
from mavstream_server.api.sql.statements import _run

RESULT: TypeAdapter[SqlResult] = TypeAdapter(SqlResult)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as made:
        run(made, "CREATE STREAM readings (at timestamp, room string, temp int NULL, WATERMARK FOR at AS at)")
        yield made


def run(server: RunningServer, sql: str) -> list[dict[str, Any]]:
    answer = server.http.post("/v1/sql", json={"sql": sql})
    assert answer.status_code == 200, answer.text
    SqlAnswer.model_validate(answer.json())
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def stopped(server: RunningServer, sql: str, status: int) -> dict[str, Any]:
    answer = server.http.post("/v1/sql", json={"sql": sql})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    SqlProblem.model_validate(answer.json())
    problem: dict[str, Any] = answer.json()
    return problem


def listed(server: RunningServer, sql: str) -> list[dict[str, Any]]:
    (result,) = run(server, sql)
    assert result["kind"] == "rows"
    return [dict(zip(result["columns"], row, strict=True)) for row in result["rows"]]


def test_every_statement_is_executed() -> None:
    assert all(_run.dispatch(kind) is not _run.dispatch(object) for kind in get_args(Statement))


def test_a_script_from_streams_to_answers(server: RunningServer) -> None:
    results = run(
        server,
        """
        CREATE STREAM doors (door string, open bool);
        CREATE CLASS alarms PRIORITY 6 WITH (latency = '20ms');
        CREATE QUERY opened WITH (class = 'alarms', latency_p95 = '1s') AS SELECT * FROM doors WHERE open;
        INSERT INTO doors VALUES ('front', TRUE), ('back', FALSE);
        INSERT INTO doors (open, door) VALUES (TRUE, 'it''s the cellar');
        """,
    )
    kinds = [(one["kind"], one.get("object"), one.get("name")) for one in results]
    assert kinds[:3] == [
        ("created", "stream", "doors"),
        ("created", "class", "alarms"),
        ("created", "query", "opened"),
    ]
    assert results[2]["admission"]["admitted"]
    assert [(one["rows"], one["position"]) for one in results[3:]] == [(2, 0), (1, 2)]
    pulled = f"/v1/queries/{results[2]['id']}/results"
    rows = eventually(lambda: len(found := server.http.get(pulled).json()["rows"]) == 2 and found, "two rows")
    assert rows == [{"door": "front", "open": True}, {"door": "it's the cellar", "open": True}]


def test_objects_are_listed_and_described(server: RunningServer) -> None:
    (query,) = run(server, "CREATE QUERY shown AS SELECT room, temp * 2 AS double FROM readings")
    streams = {row["stream"]: row for row in listed(server, "SHOW STREAMS")}
    assert streams["readings"]["rows"] == 0
    queries = {row["query"]: row for row in listed(server, "SHOW QUERIES")}
    assert (queries["shown"]["id"], queries["shown"]["class"]) == (query["id"], "default")
    assert listed(server, "SHOW TABLES") == []
    assert "default" in [row["class"] for row in listed(server, "SHOW CLASSES")]
    assert listed(server, "DESCRIBE readings") == [
        {"column": "at", "type": "timestamp", "nullable": False, "event_time": True},
        {"column": "room", "type": "string", "nullable": False, "event_time": False},
        {"column": "temp", "type": "int", "nullable": True, "event_time": False},
    ]
    assert [row["column"] for row in listed(server, "DESCRIBE shown")] == ["room", "double"]
    rooms = "room,floor\nattic,3\n"
    server.http.put(
        "/v1/tables/rooms", content=rooms, headers={"content-type": "text/csv"}
    ).raise_for_status()
    assert [row["type"] for row in listed(server, "DESCRIBE rooms")] == ["string", "int"]
    assert stopped(server, "DESCRIBE cellar", 404)["code"] == "unknown_object"
    assert run(server, "DROP TABLE rooms; DROP QUERY shown")[1] == {
        "kind": "dropped",
        "object": "query",
        "name": "shown",
    }


def test_queries_are_paused_resumed_and_dropped_by_name(server: RunningServer) -> None:
    run(server, "CREATE QUERY paused AS SELECT * FROM readings")
    results = run(server, "PAUSE QUERY paused; RESUME QUERY paused; DROP QUERY paused")
    assert [one.get("change") for one in results] == ["paused", "running", None]
    gone = stopped(server, "PAUSE QUERY paused", 404)
    assert gone["detail"] == "there is no query 'paused': SHOW QUERIES lists those that there are"


def test_the_scheduler_is_set(server: RunningServer) -> None:
    assert run(server, "SET SCHEDULER rr")[0]["name"] == "rr"
    assert server.http.get("/v1/scheduler").json()["policy"] == "rr"
    assert "policy" in stopped(server, "SET SCHEDULER quickest", 422)["detail"]


def test_classes_are_replaced_only_when_asked(server: RunningServer) -> None:
    assert run(server, "CREATE CLASS night PRIORITY 2")[0]["replaced"] is False
    assert stopped(server, "CREATE CLASS night PRIORITY 3", 409)["code"] == "class_exists"
    assert run(server, "CREATE OR REPLACE CLASS night PRIORITY 3")[0]["replaced"] is True
    assert server.http.get("/v1/classes/night").json()["priority"] == 3


def test_queries_are_replaced_while_they_run(server: RunningServer) -> None:
    sql = "CREATE OR REPLACE QUERY warm AS SELECT room, temp FROM readings WHERE temp > {}"
    (made,) = run(server, sql.format(20))
    eventually(lambda: server.http.get("/v1/queries/warm").json()["state"] == "running", "the query")
    (changed,) = run(server, sql.format(30))
    assert (made["replaced"], changed["replaced"], changed["id"]) == (False, True, made["id"])
    assert "temp > 30" in server.http.get("/v1/queries/warm/plan?format=sql").json()["sql"]
    run(server, "DROP QUERY warm")


def test_a_select_is_checked_and_not_registered(server: RunningServer) -> None:
    before = [row["id"] for row in listed(server, "SHOW QUERIES")]
    (result,) = run(server, "SELECT room, temp FROM readings WHERE temp > 20")
    assert result["kind"] == "selected"
    assert [field["name"] for field in result["fields"]] == ["room", "temp"]
    assert [node["op"] for node in result["plan"]["nodes"].values()] == ["source", "select", "project"]
    assert [row["id"] for row in listed(server, "SHOW QUERIES")] == before


def test_explain_draws_the_plan_and_says_what_would_happen(server: RunningServer) -> None:
    run(server, "CREATE STREAM watts (home int, watts float)")
    run(server, "CREATE QUERY running AS SELECT home FROM watts WHERE watts > 10")
    running = server.http.get
    eventually(lambda: running("/v1/queries/running").json()["state"] == "running", "the query")
    (found,) = run(
        server,
        "EXPLAIN SELECT home, count(*) AS n, window_end FROM TUMBLE(watts, INTERVAL '1' SECOND) "
        "WHERE watts > 10 GROUP BY home, window_end",
    )
    lines = found["tree"].splitlines()
    assert [line.strip(" │├└─").split(":")[1].split()[0].rstrip(",") for line in lines] == [
        "project",
        "aggregate",
        "select",
        "source",
    ]
    assert [line.index(line.strip(" │├└─")[0]) for line in lines] == [0, 3, 6, 9]
    assert "where watts > 10" in lines[2]
    assert all("rows/s" in line for line in lines)
    assert found["assumed_rate"] == 1000.0
    assert found["admission"]["admitted"]
    (shared,) = found["shared"]
    assert (shared["stream"], shared["queries"], shared["total"]) == ("watts", ["running"], 1)
    assert len(shared["operators"]) == 2
    assert found["backends"] == [
        {"name": "server", "supported": True, "reasons": []},
        {"name": "spark", "supported": True, "reasons": []},
    ]
    assert [field["name"] for field in found["fields"]] == ["home", "n", "window_end"]


def test_explain_draws_shared_inputs_once_and_names_what_spark_refuses(server: RunningServer) -> None:
    sql = "SELECT * FROM readings WHERE room LIKE room ESCAPE '!'"
    (found,) = run(server, f"EXPLAIN WITH a AS ({sql}) SELECT * FROM a UNION ALL SELECT * FROM a")
    assert sum("(drawn above)" in line for line in found["tree"].splitlines()) == 1
    spark = found["backends"][1]
    assert not spark["supported"]
    assert spark["reasons"] == ["a: LIKE with ESCAPE needs a constant pattern"]
    sessions = "SELECT count(*) AS n, window_end FROM SESSION(readings, INTERVAL '1' SECOND)"
    (found,) = run(server, f"EXPLAIN {sessions} GROUP BY window_end")
    (reason,) = found["backends"][1]["reasons"]
    assert reason.endswith(": sessions are not supported, only windows of a fixed length")


def test_a_script_stops_at_the_first_error_and_tells_what_took_effect(server: RunningServer) -> None:
    again = "CREATE STREAM one (n int)"
    script = f"{again};\nSELECT * FROM one;\n\n  {again}; CREATE STREAM two (n int)"
    problem = stopped(server, script, 409)
    assert problem["code"] == "stream_exists"
    assert problem["failed"] == {"number": 3, "line": 4, "column": 3, "sql": again}
    assert [one["kind"] for one in problem["results"]] == ["created", "selected"]
    for result in problem["results"]:
        RESULT.validate_python(result)
    assert "two" not in [row["stream"] for row in listed(server, "SHOW STREAMS")]


def test_errors_of_a_script_point_into_it(server: RunningServer) -> None:
    problem = stopped(server, "SHOW STREAMS;\nSELECT * FROM readngs", 422)
    (error,) = problem["errors"]
    assert (error["line"], error["column"], error["code"]) == (2, 15, "unknown_stream")
    assert problem["failed"]["number"] == 2
    nothing = stopped(server, " ; -- nothing\n", 422)
    assert (nothing["errors"][0]["code"], nothing.get("failed")) == ("empty_script", None)
    unreadable = stopped(server, "SHOW STREAMS; SELECT 'x", 422)
    assert "results" not in unreadable
    assert stopped(server, "SHOW TABLES;" * 1001, 422)["errors"][0]["code"] == "script_too_long"


def test_a_stream_gets_a_column(server: RunningServer) -> None:
    run(server, "CREATE STREAM growing (n int); INSERT INTO growing VALUES (1)")
    alter = "ALTER STREAM growing ADD COLUMN wet bool NULL"
    (added,) = run(server, alter)
    assert added == {
        "kind": "changed",
        "object": "stream",
        "name": "growing",
        "change": "column wet added",
    }
    assert run(server, alter)[0]["change"] == "column wet was there already"
    assert listed(server, "DESCRIBE growing")[1] == {
        "column": "wet",
        "type": "bool",
        "nullable": True,
        "event_time": False,
    }
    run(server, "INSERT INTO growing VALUES (2, TRUE); INSERT INTO growing (n) VALUES (3)")
    found = server.http.get("/v1/streams/growing/tuples").json()["rows"]
    assert [(row["n"], row["wet"]) for row in found] == [(1, None), (2, True), (3, None)]


def test_wrong_rows_are_refused_as_a_whole(server: RunningServer) -> None:
    run(server, "CREATE STREAM numbers (n int, text string NULL)")
    problem = stopped(server, "INSERT INTO numbers VALUES (1, 'a'), ('b', 'c')", 422)
    assert problem["code"] == "invalid_tuples"
    missing = stopped(server, "INSERT INTO numbers (text) VALUES ('a')", 422)
    assert "n" in missing["detail"]
    (done,) = run(server, "INSERT INTO numbers (n) VALUES (1), (2)")
    assert (done["rows"], done["position"]) == (2, 0)


@pytest.mark.parametrize(
    ("sql", "status", "code"),
    [
        ("ALTER STREAM readings ADD COLUMN temp float NULL", 409, "field_exists"),
        ("ALTER STREAM none ADD COLUMN wet bool NULL", 404, "unknown_stream"),
        ("DROP CLASS default", 409, "default_class"),
        ("CREATE TABLE rooms AS FROM '/etc/passwd'", 400, "file_of_client"),
        ("CREATE QUERY q WITH (class = 'none') AS SELECT * FROM readings", 422, "invalid_query"),
        ("DROP STREAM none", 404, "unknown_stream"),
    ],
)
def test_statements_that_are_refused(server: RunningServer, sql: str, status: int, code: str) -> None:
    assert stopped(server, sql, status)["code"] == code
