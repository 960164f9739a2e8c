"""Stored tables over REST: put in every format, checked, limited, listed, described, removed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.servers.running_server import RunningServer, running_server
from tests.support.servers.tables import (
    FIELDS,
    READINGS,
    ROOMS,
    answers,
    append,
    as_arrow,
    as_parquet,
    join_plan,
    problem,
    put,
    register,
    rooms_table,
)

PARQUET = "application/vnd.apache.parquet"
ARROW = "application/vnd.apache.arrow.stream"
FORMATS: dict[str, tuple[str, bytes]] = {
    "csv": ("text/csv; charset=utf-8", ROOMS),
    "json rows": ("application/json", b'[{"room": "attic", "threshold": 31.5}, {"room": "kitchen"}]'),
    "json columns": ("application/json", b'{"room": ["attic", "kitchen"], "threshold": [31.5, null]}'),
    "ndjson": ("application/x-ndjson", b'{"room": "attic", "threshold": 31.5}\n{"room": "kitchen"}\n'),
    "parquet": (PARQUET, as_parquet(rooms_table())),
    "arrow": (ARROW, as_arrow(rooms_table())),
    "arrow file": ("application/vnd.apache.arrow.file", as_arrow(rooms_table(), file=True)),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data, tokens = tmp_path_factory.mktemp("data"), {"MAVSTREAM_TOKENS": "admin:a,client:c,feeder:f"}
    with running_server(data, "--max-table-bytes", "64KiB", token="a", env=tokens) as running:
        assert running.http.post("/v1/streams", json=READINGS).status_code == 201
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"t_{zlib.crc32(request.node.name.encode())}"


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_gives_the_same_table(server: RunningServer, format_: str, name: str) -> None:
    kind, body = FORMATS[format_]
    made = put(server, body, kind, name)
    assert made.status_code == 201, made.text
    assert made.headers["etag"] == '"1"'
    info = made.json()
    assert (info["name"], info["fields"], info["rows"], info["version"]) == (name, FIELDS, 2, 1)
    # The rows are equal whatever they were written in: then no new version is made.
    for other, rows in FORMATS.values():
        again = put(server, rows, other, name)
        assert (again.status_code, again.json()["version"]) == (200, 1), (other, again.text)
    shown = server.http.get(f"/v1/tables/{name}").json()
    assert [version["version"] for version in shown["kept"]] == [1]
    assert shown["kept"][0]["since"] == info["since"]
    metrics = server.http.get("/metrics").text
    for figure, value in (("rows", 2), ("versions", 1), ("bytes", shown["bytes"])):
        assert f'mavstream_table_{figure}{{table="{name}"}} {float(value)}' in metrics


def test_rows_join_the_table_that_was_put(server: RunningServer) -> None:
    body = (
        b"room,sure,floor,weight,since,code\n"
        b'"a ""b"", c",true,-3,0.5,2026-01-01T12:00:00Z,007\n'
        b'"",FALSE,0,1e3,,x\n'
    )
    fields = "room:string,sure:bool,floor:int,weight:float,since:timestamp?,code:string"
    assert put(server, body, name="typed", params={"fields": fields}).status_code == 201
    plan = join_plan("inner")
    plan["nodes"]["rooms"]["table"] = "typed"
    query = register(server, plan)
    append(server, (1, 'a "b", c'), (2, ""), (3, None), (4, "A"))
    first = {"sure": True, "floor": -3, "weight": 0.5, "since": "2026-01-01T12:00:00.000000Z", "code": "007"}
    second = {"sure": False, "floor": 0, "weight": 1000.0, "since": None, "code": "x"}
    assert answers(server, query, 2) == [
        {"n": 1, "room": 'a "b", c', **first},
        {"n": 2, "room": "", **second},
    ]
    server.http.delete(f"/v1/queries/{query}")


BAD: dict[str, tuple[str, bytes, str, str]] = {
    "csv cell": (
        "text/csv",
        b"room,threshold\na,1\nb,hot\n",
        "rows/1/threshold",
        'expects a float, got "hot"',
    ),
    "csv width": ("text/csv", b"room,threshold\na,1,2\n", "body", "Expected 2 columns, got 3"),
    "csv unknown column": (
        "text/csv",
        b"room,treshold\na,1\n",
        "columns/treshold",
        "its fields are room, threshold",
    ),
    "csv null": ("text/csv", b"room,threshold\n,1\n", "rows/0/room", "not nullable, got null"),
    "csv not text": ("text/csv", b"room,threshold\n\xff\xfe,1\n", "body", "CSV"),
    "json cell": ("application/json", b'[{"room": 3}]', "rows/0/room", "expects a string, got 3"),
    "json text": ("application/json", b'[{"room": ', "body", "the table cannot be read as JSON"),
    "json shape": ("application/json", b"7", "body", "must be a list of objects"),
    "ndjson line": ("application/x-ndjson", b'{"room": "a"}\n{"room"\n', "rows/1", "row 1 cannot be read"),
    "arrow type": (
        ARROW,
        as_arrow(pa.table({"room": ["a"], "threshold": ["hot"]})),
        "columns/threshold",
        "the Arrow column is string: send float64",
    ),
    "arrow bytes": (ARROW, b"ARROW1", "body", "cannot be read as an Arrow IPC stream"),
    "parquet bytes": (PARQUET, b"PAR1 but not really", "body", "cannot be read as a Parquet file"),
    "parquet null": (
        PARQUET,
        as_parquet(pa.table({"room": ["a", None]})),
        "rows/1/room",
        "not nullable, got null",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_an_invalid_file_is_reported_by_row_and_column_and_changes_nothing(
    server: RunningServer, fault: str
) -> None:
    put(server, name="strict", params={"fields": "room:string,threshold:float?"})
    kind, body, pointer, words = BAD[fault]
    answer = put(server, body, kind, "strict")
    assert problem(answer)[:2] == (422, "invalid_table")
    (item, *_) = answer.json()["errors"]
    assert item["pointer"] == pointer
    assert words in item["detail"]
    assert server.http.get("/v1/tables/strict").json()["version"] == 1


UNFOUND: dict[str, tuple[str, bytes, str, str]] = {
    "mixed": ("application/json", b'[{"a": 1}, {"a": "x"}]', "columns/a", '1 and "x"'),
    "nested": ("application/json", b'[{"a": [1]}]', "columns/a", "[1]"),
    "no columns": ("application/json", b"[]", "body", "no columns"),
    "name": ("text/csv", b"my room,b\n1,2\n", "columns/my room", "letters, digits"),
    "twice": ("text/csv", b"a,A\n1,2\n", "columns", "both named"),
    "empty": ("text/csv", b"", "body", "CSV"),
    "arrow list": (ARROW, as_arrow(pa.table({"a": [[1]]})), "columns/a", "list<"),
}


@pytest.mark.parametrize("fault", UNFOUND)
def test_a_file_whose_fields_cannot_be_inferred_is_explained(server: RunningServer, fault: str) -> None:
    kind, body, pointer, words = UNFOUND[fault]
    answer = put(server, body, kind, "unfound")
    assert problem(answer)[:2] == (422, "invalid_table")
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert words in answer.json()["errors"][0]["detail"]
    assert problem(server.http.get("/v1/tables/unfound"))[:2] == (404, "unknown_table")


def test_other_errors_of_a_request_are_explained(server: RunningServer) -> None:
    put(server, name="known")
    assert problem(put(server, b"x", "text/html", "known"))[:2] == (415, "unsupported_media_type")
    wrong = problem(put(server, name="known", params={"fields": "room:text"}))
    assert wrong[:2] == (422, "invalid_table")
    assert "'room:text' is not NAME:TYPE" in wrong[2]
    other = problem(put(server, b"room\na\n", name="known", params={"fields": "room:string"}))
    assert other[:2] == (409, "other_fields")
    assert "(room string?, threshold float?), got (room string)" in other[2]
    old = server.http.put(
        "/v1/tables/known", content=ROOMS, headers={"content-type": "text/csv", "if-match": '"7"'}
    )
    assert problem(old)[:2] == (412, "wrong_version")
    assert problem(put(server, name="no-name"))[0] == 422
    meant = problem(server.http.get("/v1/tables/knwn"))
    assert "did you mean 'known'" in meant[2]


def test_the_size_of_a_table_is_limited_as_sent_and_as_stored(server: RunningServer) -> None:
    long = b"room,threshold\n" + b"attic,1\n" * 10_000
    refused = problem(put(server, long, name="large"))
    assert refused[:2] == (413, "table_too_large")
    assert "65536" in refused[2]
    packed = as_parquet(pa.table({"a": pa.array(range(20_000)), "b": ["x"] * 20_000}), compression="zstd")
    assert len(packed) < 64 << 10
    unpacked = problem(put(server, packed, PARQUET, "large"))
    assert unpacked[:2] == (413, "table_too_large")
    assert "MAVSTREAM_MAX_TABLE_BYTES" in unpacked[2]
    chunked = server.http.put("/v1/tables/large", content=iter([long]), headers={"content-type": "text/csv"})
    assert problem(chunked)[:2] == (413, "table_too_large")
    assert server.http.get("/v1/info").json()["limits"]["max_table_bytes"] == 64 << 10


def test_tables_are_paged_and_a_used_one_is_not_removed(tmp_path: Path) -> None:
    with running_server(tmp_path, "--max-tables", "3") as server:
        server.http.post("/v1/streams", json=READINGS)
        for name in ("rooms", "alarms", "homes"):
            assert put(server, name=name).status_code == 201
        assert problem(put(server, name="more"))[:2] == (429, "too_many_tables")
        first = server.http.get("/v1/tables", params={"limit": 2}).json()
        assert ([one["name"] for one in first["items"]], first["next"]) == (["alarms", "homes"], "homes")
        rest = server.http.get("/v1/tables", params={"limit": 2, "after": "homes"}).json()
        assert ([one["name"] for one in rest["items"]], rest["next"]) == (["rooms"], None)
        query = register(server, join_plan())
        assert server.http.get("/v1/tables/rooms").json()["used_by"] == [query]
        refused = problem(server.http.delete("/v1/tables/rooms"))
        assert refused[:2] == (409, "table_in_use")
        assert query in refused[2]
        assert server.http.get(f"/v1/queries/{query}").json()["state"] == "running"
        assert _edges(server, query) >= {("stream:readings", "in"), ("table:rooms", "joined")}
        server.http.patch(f"/v1/queries/{query}", json={"state": "stopped"})
        assert server.http.delete("/v1/tables/rooms").status_code == 204
        assert problem(server.http.delete("/v1/tables/rooms"))[:2] == (404, "unknown_table")
        assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == ["alarms", "homes"]
        gone = server.http.post("/v1/queries", json={"plan": join_plan()})
        assert gone.json()["errors"][0]["pointer"] == "plan/nodes/rooms/table"
        # A table of the same name is another one: its rows are joined, and its fields may differ.
        assert put(server, b"room,n2\nattic,5\n").json()["version"] == 1
        query = register(server, join_plan("inner"))
        append(server, (1, "attic"))
        assert answers(server, query, 1) == [{"n": 1, "room": "attic", "n2": 5}]


def test_roles_that_may_put_and_remove_tables(server: RunningServer, name: str) -> None:
    def ask(method: str, token: str) -> int:
        headers = {"authorization": f"Bearer {token}", "content-type": "text/csv"}
        body = ROOMS if method == "PUT" else b""
        return server.http.request(method, f"/v1/tables/{name}", headers=headers, content=body).status_code

    assert [ask("PUT", token) for token in "fcax"] == [201, 200, 200, 401]
    assert [ask("DELETE", token) for token in "fca"] == [403, 403, 204]


def _edges(server: RunningServer, query: str) -> set[tuple[Any, Any]]:
    edges = server.http.get(f"/v1/queries/{query}/plan").json()["edges"]
    return {(edge["from"], edge["to"]) for edge in edges}
