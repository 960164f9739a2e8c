"""Export of a running server's queries as a workload, with measured costs and rates.

With it a policy can be tried on the current load of a server before it is activated there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
from pydantic import ValidationError

from mavstream_protocol.classes import QueryClass
from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.queries import QuerySpec
from mavstream_server.simulation.scenario import READING, answers_of
from mavstream_server.simulation.workload.errors import InvalidWorkload
from mavstream_server.simulation.workload.model import Workload

TOKEN = "MAVSTREAM_TOKEN"
"""Environment variable with the API token."""
_TIMEOUT = 10.0
_SECONDS = 10.0


class ExportFailed(MavstreamError):
    """The server cannot be reached, or has nothing to export."""

    code = "export_failed"


def from_server(url: str, token: str | None = None, measure_s: float = 1.0) -> Workload:
    """Return a server's running queries as a workload; rates are measured for `measure_s` seconds.

    Raises ExportFailed.
    """
    token = token or os.environ.get(TOKEN)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=_TIMEOUT) as client:
            before, begin = _positions(client), time.monotonic()
            time.sleep(measure_s)
            after, elapsed = _positions(client), time.monotonic() - begin
            rates = {name: (after[name] - before.get(name, 0)) / elapsed for name in after}
            classes = {one["name"]: QueryClass.model_validate(one) for one in _items(client, "/v1/classes")}
            targets = dict(_latency_targets(client))
            queries = list(_items(client, "/v1/plan", "queries"))
            scheduler = _get(client, "/v1/scheduler", {})
    except httpx.HTTPError as error:
        raise ExportFailed(f"the server at {url} cannot be reached: {error}") from None
    return workload_of(url, classes, rates, queries, scheduler, targets)


def workload_of(
    name: str,
    classes: Mapping[str, QueryClass],
    rates: Mapping[str, float],
    queries: Sequence[Mapping[str, Any]],
    scheduler: Mapping[str, Any],
    targets: Mapping[str, int] = MappingProxyType({}),
) -> Workload:
    """Return the workload of queries in the format of `GET /v1/plan`; raises ExportFailed.

    `targets` are the queries' own latency targets (us), by id.
    """
    known = list(_in_reading_order([query for query in queries if query["operators"]]))
    if not known:
        raise ExportFailed(f"{name} has no running queries: register some and feed their streams")
    sources = {one["query"]: _read(one, {query["query"] for query in known}) for one in known}
    read = {stream for one in sources.values() for stream in one.streams.values()}
    if not any(rates.get(stream) for stream in read):
        raise ExportFailed(f"{name} received no rows during the measurement: feed its streams meanwhile")
    unmeasured = [
        f"{query['query']}/{one['name']}"
        for query in known
        for one in query["operators"]
        if not one["tuples"]
    ]
    costs = [
        one["cost_per_tuple_us"]
        for query in known
        for one in query["operators"]
        if one["name"] in sources[query["query"]].streams
    ]
    data = {
        "name": name,
        "about": "exported from a running server; costs per tuple include calls at its batch sizes",
        "fitted": [f"not measured yet, default statistics: {one}" for one in unmeasured],
        "seconds": _SECONDS,
        "sources": {"cost_us": sum(costs) / len(costs) if costs else 0.0},
        "classes": {one: _class(classes.get(one)) for one in sorted({q["class"] for q in known})},
        "streams": {stream: {"rate": round(rates.get(stream, 0.0), 3)} for stream in sorted(read)},
        "queries": [
            {
                "id": query["query"],
                "class": query["class"],
                "latency_us": targets.get(query["query"]),
                "operators": _operators(query, sources[query["query"]]),
            }
            for query in known
        ],
        "policies": {scheduler["policy"]: scheduler.get("options", {})} if scheduler else {},
    }
    try:
        return Workload.model_validate(data)
    except ValidationError as error:
        raise InvalidWorkload.of(name, error) from None


def _class(spec: QueryClass | None) -> dict[str, Any]:
    return {"priority": 1} if spec is None else {"priority": spec.priority, "latency_us": spec.latency}


def _latency_targets(client: httpx.Client) -> Iterator[tuple[str, int]]:
    """Return the queries' own latency targets (us), with their ids."""
    for one in _items(client, "/v1/queries"):
        latency = QuerySpec.model_validate(one["spec"]).qos.latency
        if latency is not None:
            yield one["id"], latency.at_most


def _operators(query: Mapping[str, Any], read: _Read) -> dict[str, Any]:
    """Return a query's operators, bottom-up; readers of a source read its stream instead.

    Sources of results become operators: results do not arrive by themselves.
    """
    inputs: dict[str, list[str]] = {name: [answers_of(id_)] for name, id_ in read.results.items()}
    readers: dict[str, int] = {}
    for edge in query["edges"]:
        if edge["to"] not in read.streams and edge["to"] not in read.results:
            inputs.setdefault(edge["to"], []).append(read.streams.get(edge["from"], edge["from"]))
            readers[edge["from"]] = readers.get(edge["from"], 0) + 1
    found = {}
    for one in query["operators"]:
        name, selectivity = one["name"], one["selectivity"]
        if name in read.streams:
            continue
        if one["operator"] == "split":
            # A split passes each row to one of its readers; in a workload all readers get all output.
            selectivity /= max(readers.get(name, 1), 1)
        found[name] = {
            "kind": READING if name in read.results else one["operator"],
            "inputs": inputs[name],
            "cost_us": one["cost_per_tuple_us"],
            "selectivity": selectivity,
        }
    return found


class _Read(NamedTuple):
    """What the sources of a query read, by source."""

    streams: dict[str, str]
    results: dict[str, str]
    """The ids of queries."""


def _read(query: Mapping[str, Any], running: Collection[str]) -> _Read:
    """Return what a query reads; the results of queries that do not run are like a stream without rows."""
    streams, results = {}, {}
    for edge in query["edges"]:
        kind, _, name = str(edge["from"]).partition(":")
        id_ = query.get("reads", {}).get(name)
        if kind == "query" and id_ in running:
            results[edge["to"]] = id_
        elif kind in ("stream", "query") and name:
            streams[edge["to"]] = name
    return _Read(streams, results)


def _in_reading_order(queries: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield queries, each after those whose results it reads."""
    left = {query["query"]: query for query in queries}
    waiting = list(reversed(queries))
    while waiting:
        query = waiting.pop()
        below = [left[id_] for id_ in query.get("reads", {}).values() if id_ in left]
        if query["query"] not in left:
            continue
        if below:
            waiting += [query, *below]
        else:
            yield left.pop(query["query"])


def _positions(client: httpx.Client) -> dict[str, int]:
    return {one["name"]: one["position"] for one in _items(client, "/v1/streams")}


def _items(client: httpx.Client, path: str, key: str = "items") -> Iterator[dict[str, Any]]:
    """Return all items of a paginated list."""
    after: dict[str, str] = {}
    while True:
        page = _get(client, path, after)
        yield from page[key]
        if page.get("next") is None:
            return
        after = {"after": page["next"]}


def _get(client: httpx.Client, path: str, params: Mapping[str, str]) -> dict[str, Any]:
    reply = client.get(path, params=dict(params))
    if reply.is_error:
        raise ExportFailed(f"{client.base_url}{path} answered {reply.status_code}: {reply.text[:200]}")
    answer: dict[str, Any] = reply.json()
    return answer
