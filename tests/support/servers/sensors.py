"""Requests about a stream of sensors, for tests of requests that a server refuses."""

from __future__ import annotations

from typing import Any

import httpx

SENSORS: dict[str, Any] = {
    "name": "sensors",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "x", "type": "float"},
        {"name": "t", "type": "string", "nullable": True},
        {"name": "at", "type": "timestamp", "nullable": True},
    ],
}
PLAN = {"root": "in", "nodes": {"in": {"op": "source", "stream": "sensors"}}}
STREAM = "/v1/streams"
TUPLES = "/v1/streams/sensors/tuples"


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["detail"]
    return answer.status_code, body["code"]
