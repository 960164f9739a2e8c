"""Reading a whole stream back, through a query that selects all of its rows from the earliest on."""

from __future__ import annotations

import time
from typing import Any

from attack.target.server import PATIENCE, TargetServer

_POLL = 0.05
_PAGE = 10_000


def read_stream(server: TargetServer, stream: str, count: int) -> list[dict[str, Any]]:
    """Return the rows of a stream: waits until there are `count` of them, and a little for more."""
    plan = {"root": "in", "nodes": {"in": {"op": "source", "stream": stream}}}
    query = server.create("/v1/queries", {"plan": plan, "from": "earliest"})["id"]
    rows: list[dict[str, Any]] = []
    end, after = time.monotonic() + PATIENCE, -1
    while time.monotonic() < end:
        parameters = {"after": after, "limit": _PAGE}
        pulled = server.http.get(f"/v1/queries/{query}/results", params=parameters).json()
        rows += pulled["rows"]
        after = pulled["next"]
        if len(rows) >= count and not pulled["rows"]:
            break
        time.sleep(_POLL)
    server.http.delete(f"/v1/queries/{query}")
    return rows
