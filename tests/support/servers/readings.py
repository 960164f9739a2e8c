"""Readings for tests of real servers: the stream, rows in every encoding, a query over all of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from tests.support.servers.running_server import RunningServer, eventually

from mavstream_protocol import StreamSpec
from mavstream_protocol.tuples import decode_rows

READINGS: dict[str, Any] = {
    "name": "readings",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "home", "type": "string", "nullable": True},
        {"name": "temperature", "type": "float"},
        {"name": "open", "type": "bool"},
    ],
}
SCHEMA = StreamSpec.model_validate(READINGS).schema()


def plan(where: str = "n >= 0", stream: str = "readings") -> dict[str, Any]:
    return {
        "root": "out",
        "nodes": {
            "in": {"op": "source", "stream": stream},
            "out": {"op": "select", "input": "in", "where": where},
        },
    }


def row(n: int) -> dict[str, Any]:
    return {"n": n, "home": None if n % 3 == 0 else f"h{n}", "temperature": n / 2, "open": n % 2 == 0}


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [row(n) for n in range(start, stop)]


def batch(start: int, stop: int) -> pa.RecordBatch:
    return decode_rows(SCHEMA, rows(start, stop))


def columns(start: int, stop: int) -> dict[str, list[Any]]:
    return {name: [each[name] for each in rows(start, stop)] for name in SCHEMA.names}


def register(server: RunningServer, **spec: Any) -> str:
    answer = server.http.post("/v1/queries", json={"plan": plan(), **spec})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def create(server: RunningServer, **changes: Any) -> None:
    assert server.http.post("/v1/streams", json={**READINGS, **changes}).status_code == 201


def pull(server: RunningServer, query: str, count: int) -> list[dict[str, Any]]:
    """Wait for a number of answers and return all."""
    found: list[dict[str, Any]] = []

    def more() -> bool:
        after = len(found) - 1
        part = server.http.get(
            f"/v1/queries/{query}/results", params={"after": after, "limit": 10_000}
        ).json()
        assert part.get("gap") is None
        found.extend(part["rows"])
        return len(found) >= count

    eventually(more, f"{count} answers of {query}")
    return found
