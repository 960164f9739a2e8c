"""Tables and joins for tests of real servers."""

from __future__ import annotations

from typing import Any

import httpx
import pyarrow as pa
from pyarrow import parquet
from tests.support.servers.running_server import RunningServer, eventually

CSV = {"content-type": "text/csv"}
ROOMS = b"room,threshold\nattic,31.5\nkitchen,\n"
FIELDS = [
    {"name": "room", "type": "string", "nullable": True},
    {"name": "threshold", "type": "float", "nullable": True},
]
READINGS = {
    "name": "readings",
    "fields": [{"name": "n", "type": "int"}, {"name": "room", "type": "string", "nullable": True}],
}


def rooms_table() -> pa.Table:
    return pa.table({"room": ["attic", "kitchen"], "threshold": [31.5, None]})


def as_parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, **options)
    return bytes(sink.getvalue().to_pybytes())


def as_arrow(table: pa.Table, *, file: bool = False) -> bytes:
    sink = pa.BufferOutputStream()
    make = pa.ipc.new_file if file else pa.ipc.new_stream
    with make(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def join_plan(how: str = "left", **parts: Any) -> dict[str, Any]:
    return {
        "root": "joined",
        "nodes": {
            "in": {"op": "source", "stream": "readings"},
            "rooms": {"op": "table", "table": "rooms"},
            "joined": {
                "op": "join",
                "left": "in",
                "right": "rooms",
                "on": [["room", "room"]],
                "how": how,
                **parts,
            },
        },
    }


def put(
    server: RunningServer, body: bytes = ROOMS, kind: str = "text/csv", name: str = "rooms", **options: Any
) -> httpx.Response:
    return server.http.put(f"/v1/tables/{name}", content=body, headers={"content-type": kind}, **options)


def register(server: RunningServer, plan: dict[str, Any], **spec: Any) -> str:
    answer = server.http.post("/v1/queries", json={"plan": plan, **spec})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def append(server: RunningServer, *rows: tuple[int, str | None]) -> None:
    body = [{"n": n, "room": room} for n, room in rows]
    answer = server.http.post("/v1/streams/readings/tuples", json=body)
    assert answer.status_code == 200, answer.text


def answers(server: RunningServer, query: str, count: int) -> list[dict[str, Any]]:
    """Wait for a number of answers and return all."""
    found: list[dict[str, Any]] = []

    def more() -> bool:
        params = {"after": len(found) - 1, "limit": 10_000}
        found.extend(server.http.get(f"/v1/queries/{query}/results", params=params).json()["rows"])
        return len(found) >= count

    eventually(more, f"{count} answers of {query}")
    return found


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    return answer.status_code, body["code"], body["detail"]
