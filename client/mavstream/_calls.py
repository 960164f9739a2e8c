"""What a client can ask of a server, each as a conversation; both kinds of clients carry these out."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel, TypeAdapter

from mavstream._convert.documents import (
    QueryLike,
    StreamLike,
    query_document,
    stream_document,
    validation_document,
)
from mavstream._convert.tables import FieldsLike, TableLike, fields_text, table_body
from mavstream._convert.tuples import Tuples, canonical
from mavstream._errors import Invalid, NotFound
from mavstream._transport.http import exchange, fetch, fetch_all
from mavstream._transport.retry import Retry
from mavstream._transport.steps import Request, Talk, ask, quote
from mavstream_protocol import InvalidTuples, QueryClass, Schema
from mavstream_protocol.producer import encode_batch
from mavstream_protocol.scheduling import SchedulerSettings, SchedulerTrace, SourceService
from mavstream_protocol.tuples import encode_schema
from mavstream_protocol.wire.optimizer import DecisionInfo, OptimizerInfo
from mavstream_protocol.wire.plans import QueryPlan
from mavstream_protocol.wire.qos import QosReport
from mavstream_protocol.wire.resources import (
    PolicyInfo,
    PulledResults,
    QueryInfo,
    ServerInfo,
    StreamInfo,
    TableDetail,
    TableInfo,
    Validation,
)

_JSON = {"Content-Type": "application/json"}
_ANYTHING: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_LARGEST_BODY = 8 << 20
"""Bytes of tuples in one request, half of what a server takes where nothing else is set."""
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""What ends an Arrow IPC stream."""


class Calls:
    """Conversations with one server; keeps the schemas of streams that rows were sent to."""

    def __init__(self, retry: Retry) -> None:
        self.retry = retry
        self._schemas: dict[str, Schema] = {}

    def info(self) -> Talk[ServerInfo]:
        """Ask which server this is."""
        return self._get("/v1/info", ServerInfo)

    def ready(self) -> Talk[bool]:
        """Ask once whether the server takes work now."""
        reply = yield from ask(Request("GET", "/readyz"))
        return reply.status == 200

    def stats(self) -> Talk[dict[str, Any]]:
        """Ask for figures per class and of the engine."""
        return self._get("/v1/stats", _ANYTHING)

    def plan(self) -> Talk[dict[str, Any]]:
        """Ask for the global plan."""
        return self._get("/v1/plan", _ANYTHING)

    def create_stream(self, spec: StreamLike | None, given: Mapping[str, Any]) -> Talk[StreamInfo]:
        """Register a stream."""
        return self._post("/v1/streams", stream_document(spec, given), StreamInfo, once=True)

    def streams(self) -> Talk[list[StreamInfo]]:
        """Ask for all streams."""
        return fetch_all("/v1/streams", self.retry, StreamInfo, {})

    def stream_info(self, name: str) -> Talk[StreamInfo]:
        """Ask how a stream stands."""
        return self._get(f"/v1/streams/{quote(name)}", StreamInfo)

    def delete_stream(self, name: str) -> Talk[None]:
        """Remove a stream and its rows."""
        self._schemas.pop(name, None)
        yield from exchange(Request("DELETE", f"/v1/streams/{quote(name)}"), self.retry)

    def complete(self, name: str) -> Talk[StreamInfo]:
        """Say that no more rows of a stream will come from anybody."""
        return fetch(Request("POST", f"/v1/streams/{quote(name)}/complete"), self.retry, StreamInfo)

    def schema(self, stream: str) -> Talk[Schema]:
        """Ask for the schema of a stream's rows."""
        info = yield from self.stream_info(stream)
        self._schemas[stream] = info.spec.schema()
        return self._schemas[stream]

    def append(self, stream: str, tuples: Tuples) -> Talk[int]:
        """Append rows to a stream; returns how many."""
        # An iterator can be read once, and the rows may have to be looked at twice.
        held = tuples if hasattr(tuples, "__len__") else list(tuples)
        schema = self._schemas.get(stream)
        if schema is not None:
            try:
                return (yield from self._append(stream, schema, held))
            except (InvalidTuples, Invalid, NotFound):
                # The stream may have been made anew with other fields since.
                if (yield from self.schema(stream)) == schema:
                    raise
        fresh = yield from self.schema(stream)
        return (yield from self._append(stream, fresh, held))

    def put_table(self, name: str, data: TableLike, fields: FieldsLike | None) -> Talk[TableInfo]:
        """Make rows the current version of a table."""
        declared, (kind, content) = fields_text(fields), table_body(data)
        # The same rows again make no new version, so that it can be repeated.
        request = Request(
            "PUT",
            f"/v1/tables/{quote(name)}",
            params={} if declared is None else {"fields": declared},
            headers={"Content-Type": kind},
            content=content,
        )
        return fetch(request, self.retry, TableInfo)

    def tables(self) -> Talk[list[TableInfo]]:
        """Ask for all tables."""
        return fetch_all("/v1/tables", self.retry, TableInfo, {})

    def table_info(self, name: str) -> Talk[TableDetail]:
        """Ask how a table stands."""
        return self._get(f"/v1/tables/{quote(name)}", TableDetail)

    def delete_table(self, name: str) -> Talk[None]:
        """Remove a table and its versions."""
        yield from exchange(Request("DELETE", f"/v1/tables/{quote(name)}"), self.retry)

    def put_class(self, name: str, priority: int, description: str) -> Talk[QueryClass]:
        """Set how much a class matters."""
        body = {"name": name, "priority": priority, "description": description}
        request = Request("PUT", f"/v1/classes/{quote(name)}", headers=_JSON, content=orjson.dumps(body))
        return fetch(request, self.retry, QueryClass)

    def classes(self) -> Talk[list[QueryClass]]:
        """Ask for all classes."""
        return fetch_all("/v1/classes", self.retry, QueryClass, {})

    def submit(self, query: QueryLike, given: Mapping[str, Any]) -> Talk[QueryInfo]:
        """Register a query."""
        return self._post("/v1/queries", query_document(query, given), QueryInfo, once=True)

    def validate(self, query: QueryLike, given: Mapping[str, Any]) -> Talk[Validation]:
        """Ask what the server would say of a query."""
        return self._post("/v1/queries/validate", validation_document(query, given), Validation)

    def queries(self, state: str | None) -> Talk[list[QueryInfo]]:
        """Ask for all queries, or those in a state."""
        return fetch_all("/v1/queries", self.retry, QueryInfo, {} if state is None else {"state": state})

    def query_info(self, query: str) -> Talk[QueryInfo]:
        """Ask how a query stands."""
        return self._get(f"/v1/queries/{quote(query)}", QueryInfo)

    def change(self, query: str, changes: Mapping[str, Any]) -> Talk[QueryInfo]:
        """Change the desired state, the class, the times or the targets of a query."""
        named = {name.rstrip("_"): value for name, value in _plain(changes).items()}
        request = Request("PATCH", f"/v1/queries/{quote(query)}", headers=_JSON, content=orjson.dumps(named))
        return fetch(request, self.retry, QueryInfo)

    def delete_query(self, query: str) -> Talk[None]:
        """Remove a query and its answers."""
        yield from exchange(Request("DELETE", f"/v1/queries/{quote(query)}"), self.retry)

    def query_plan(self, query: str) -> Talk[QueryPlan]:
        """Ask for a query's plan as it runs."""
        return self._get(f"/v1/queries/{quote(query)}/plan", QueryPlan)

    def qos(self, query: str) -> Talk[QosReport]:
        """Ask for a query's targets, what is measured, and what was done for it."""
        return self._get(f"/v1/queries/{quote(query)}/qos", QosReport)

    def pull(self, query: str, after: int | None, limit: int | None) -> Talk[PulledResults]:
        """Ask for a part of a query's answers."""
        given = {"after": after, "limit": limit}
        params = {name: str(value) for name, value in given.items() if value is not None}
        request = Request("GET", f"/v1/queries/{quote(query)}/results", params=params)
        return fetch(request, self.retry, PulledResults)

    def policies(self) -> Talk[list[PolicyInfo]]:
        """Ask which policies can be chosen."""
        return fetch_all("/v1/policies", self.retry, PolicyInfo, {})

    def scheduler(self) -> Talk[SchedulerSettings]:
        """Ask which policy decides."""
        return self._get("/v1/scheduler", SchedulerSettings)

    def set_scheduler(
        self, policy: str, options: Mapping[str, Any], sources: SourceService | None = None
    ) -> Talk[SchedulerSettings]:
        """Let another policy decide."""
        content = orjson.dumps({"policy": policy, "options": dict(options), "sources": sources})
        request = Request("PUT", "/v1/scheduler", headers=_JSON, content=content)
        return fetch(request, self.retry, SchedulerSettings)

    def optimizer(self) -> Talk[OptimizerInfo]:
        """Ask what the optimizer may do, and what is in force."""
        return self._get("/v1/optimizer", OptimizerInfo)

    def set_optimizer(self, changes: Mapping[str, Any]) -> Talk[OptimizerInfo]:
        """Change some of what the optimizer may do; the rest stays as it is."""
        info = yield from self.optimizer()
        known = info.settings.model_dump(mode="json")
        content = orjson.dumps({**known, **_plain(changes)})
        request = Request("PUT", "/v1/optimizer", headers=_JSON, content=content)
        return (yield from fetch(request, self.retry, OptimizerInfo))

    def decisions(self, query: str | None) -> Talk[list[DecisionInfo]]:
        """Ask what the optimizer decided."""
        params = {} if query is None else {"query": query}
        return fetch_all("/v1/optimizer/decisions", self.retry, DecisionInfo, params)

    def trace(self, seconds: float) -> Talk[SchedulerTrace]:
        """Ask who runs when, for so long."""
        request = Request("GET", "/v1/scheduler/trace", params={"seconds": str(seconds)})
        return fetch(request, self.retry, SchedulerTrace)

    def _get(self, path: str, model: Any) -> Talk[Any]:
        return fetch(Request("GET", path), self.retry, model)

    def _post(self, path: str, body: Mapping[str, Any], model: Any, once: bool = False) -> Talk[Any]:
        # The key lets the server recognise a repetition, so that nothing is created twice.
        key = {"Idempotency-Key": uuid.uuid4().hex} if once else {}
        request = Request("POST", path, headers={**_JSON, **key}, content=orjson.dumps(body))
        return fetch(request, self.retry, model)

    def _append(self, stream: str, schema: Schema, tuples: Tuples) -> Talk[int]:
        batch = canonical(schema, tuples)
        head = encode_schema(schema)
        for encoded in encode_batch(batch, _LARGEST_BODY):
            yield from exchange(
                Request(
                    "POST",
                    f"/v1/streams/{quote(stream)}/tuples",
                    headers={"Content-Type": "application/vnd.apache.arrow.stream"},
                    content=head + encoded.payload + _END_OF_STREAM,
                    # Nothing tells the server that it is the same rows again.
                    repeatable=False,
                ),
                self.retry,
            )
        return int(batch.num_rows)


def _plain(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes as JSON knows them; models may be among them."""
    return {
        name: value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        for name, value in changes.items()
    }
