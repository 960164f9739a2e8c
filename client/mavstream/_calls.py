"""The requests of the REST API as conversations, shared by the blocking and the asyncio client."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

from mavstream._convert.documents import (
    QueryLike,
    StreamLike,
    query_document,
    query_or_sql,
    validation_document,
)
from mavstream._convert.json_body import json_body
from mavstream._convert.streams import StreamOptions, stream_request
from mavstream._convert.tables import FieldsLike, TableLike, fields_text, table_body
from mavstream._convert.tuples import Tuples, canonical
from mavstream._errors import Invalid, NotFound, SqlError
from mavstream._results.row_page import RowPage, read_row_page
from mavstream._sql.results import SqlResults
from mavstream._sql.talk import run_sql
from mavstream._transport.http import exchange, fetch, fetch_all
from mavstream._transport.retry import Retry
from mavstream._transport.steps import Request, Talk, ask, quote
from mavstream_protocol import InvalidTuples, QueryClass, Schema
from mavstream_protocol.producer import encode_batch
from mavstream_protocol.scheduling import SchedulerSettings, SchedulerTrace, SourceService
from mavstream_protocol.tuples import encode_schema
from mavstream_protocol.wire.optimizer import DecisionInfo, OptimizerInfo
from mavstream_protocol.wire.plans import QueryPlan, QuerySql
from mavstream_protocol.wire.qos import QosReport
from mavstream_protocol.wire.resources import (
    PolicyInfo,
    ProducerInfo,
    PulledResults,
    QueryInfo,
    ServerInfo,
    StreamInfo,
    TableDetail,
    TableInfo,
    Validation,
)
from mavstream_protocol.wire.trials import TrialResult

_JSON = {"Content-Type": "application/json"}
_ARROW = "application/vnd.apache.arrow.stream"
_ANYTHING: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_MAX_BODY_BYTES = 8 << 20
"""Bytes of rows in one request: half of what a server takes by default."""
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""The end-of-stream marker of Arrow IPC."""


class Calls:
    """Requests to one server; caches the schemas of streams that rows were sent to."""

    def __init__(self, retry: Retry) -> None:
        self.retry = retry
        self._schemas: dict[str, Schema] = {}

    def info(self) -> Talk[ServerInfo]:
        """Get the server's name, version and limits."""
        return self._get("/v1/info", ServerInfo)

    def ready(self) -> Talk[bool]:
        """Get whether the server takes work now, without retries."""
        reply = yield from ask(Request("GET", "/readyz"))
        return reply.status == 200

    def stats(self) -> Talk[dict[str, Any]]:
        """Get metrics of the classes and of the engine."""
        return self._get("/v1/stats", _ANYTHING)

    def plan(self) -> Talk[dict[str, Any]]:
        """Get the global plan."""
        return self._get("/v1/plan", _ANYTHING)

    def create_stream(self, spec: StreamLike | None, given: StreamOptions) -> Talk[StreamInfo]:
        """Create a stream."""
        return self._post("/v1/streams", stream_request(spec, given), StreamInfo, once=True)

    def streams(self) -> Talk[list[StreamInfo]]:
        """List the streams."""
        return fetch_all("/v1/streams", self.retry, StreamInfo, {})

    def stream_info(self, name: str) -> Talk[StreamInfo]:
        """Get the state of a stream."""
        return self._get(f"/v1/streams/{quote(name)}", StreamInfo)

    def update_stream(self, name: str, changes: Mapping[str, Any]) -> Talk[StreamInfo]:
        """Add fields to a stream, or change its limits."""
        self._schemas.pop(name, None)
        body = json_body(_plain(changes))
        request = Request("PATCH", f"/v1/streams/{quote(name)}", headers=_JSON, content=body)
        return fetch(request, self.retry, StreamInfo)

    def delete_stream(self, name: str) -> Talk[None]:
        """Delete a stream and its rows."""
        self._schemas.pop(name, None)
        yield from exchange(Request("DELETE", f"/v1/streams/{quote(name)}"), self.retry)

    def complete(self, name: str) -> Talk[StreamInfo]:
        """Say that no more rows of a stream will follow, from any producer."""
        # The type is required without a body, too: it keeps pages of other sites from doing this.
        request = Request("POST", f"/v1/streams/{quote(name)}/complete", headers=_JSON)
        return fetch(request, self.retry, StreamInfo)

    def producers(self) -> Talk[list[ProducerInfo]]:
        """List the producers."""
        return fetch_all("/v1/producers", self.retry, ProducerInfo, {})

    def delete_producer(self, name: str) -> Talk[None]:
        """Delete a producer."""
        yield from exchange(Request("DELETE", f"/v1/producers/{quote(name)}"), self.retry)

    def schema(self, stream: str) -> Talk[Schema]:
        """Get the schema of a stream, and cache it."""
        info = yield from self.stream_info(stream)
        self._schemas[stream] = info.spec.schema()
        return self._schemas[stream]

    def append(self, stream: str, tuples: Tuples) -> Talk[int]:
        """Append rows to a stream; returns how many."""
        # An iterator can be read only once, and the rows may be needed twice.
        again = hasattr(tuples, "__len__") or not isinstance(tuples, Iterable)
        held = tuples if again else list(tuples)
        schema = self._schemas.get(stream)
        if schema is not None:
            try:
                return (yield from self._append(stream, schema, held))
            except (InvalidTuples, Invalid, NotFound):
                # The stream may have been recreated with other fields since.
                if (yield from self.schema(stream)) == schema:
                    raise
        fresh = yield from self.schema(stream)
        return (yield from self._append(stream, fresh, held))

    def rows(self, stream: str, after: int | None, limit: int | None) -> Talk[RowPage]:
        """Get a page of a stream's rows."""
        given = {"after": after, "limit": limit}
        request = Request(
            "GET",
            f"/v1/streams/{quote(stream)}/tuples",
            params={name: str(value) for name, value in given.items() if value is not None},
            headers={"Accept": _ARROW},
        )
        return read_row_page((yield from exchange(request, self.retry)))

    def put_table(self, name: str, data: TableLike, fields: FieldsLike | None) -> Talk[TableInfo]:
        """Store a table, or a new version of it."""
        declared, (kind, content) = fields_text(fields), table_body(data)
        # Idempotent: the same rows make no new version.
        request = Request(
            "PUT",
            f"/v1/tables/{quote(name)}",
            params={} if declared is None else {"fields": declared},
            headers={"Content-Type": kind},
            content=content,
        )
        return fetch(request, self.retry, TableInfo)

    def tables(self) -> Talk[list[TableInfo]]:
        """List the tables."""
        return fetch_all("/v1/tables", self.retry, TableInfo, {})

    def table_info(self, name: str) -> Talk[TableDetail]:
        """Get the state of a table."""
        return self._get(f"/v1/tables/{quote(name)}", TableDetail)

    def delete_table(self, name: str) -> Talk[None]:
        """Delete a table and its versions."""
        yield from exchange(Request("DELETE", f"/v1/tables/{quote(name)}"), self.retry)

    def put_class(self, name: str, priority: int, description: str, latency: str | None) -> Talk[QueryClass]:
        """Create or replace a class."""
        body = {"priority": priority, "description": description, "latency": latency}
        request = Request("PUT", f"/v1/classes/{quote(name)}", headers=_JSON, content=json_body(body))
        return fetch(request, self.retry, QueryClass)

    def delete_class(self, name: str) -> Talk[None]:
        """Delete a class."""
        yield from exchange(Request("DELETE", f"/v1/classes/{quote(name)}"), self.retry)

    def classes(self) -> Talk[list[QueryClass]]:
        """List the classes."""
        return fetch_all("/v1/classes", self.retry, QueryClass, {})

    def submit(self, query: QueryLike | None, sql: str | None, given: Mapping[str, Any]) -> Talk[QueryInfo]:
        """Register a query."""
        document = query_document(query_or_sql(query, sql), given)
        try:
            info: QueryInfo = yield from self._post("/v1/queries", document, QueryInfo, once=True)
        except Invalid as error:
            if sql is None or not any(one.line for one in error.problem.errors):
                raise
            raise SqlError.of(error.problem, sql) from None
        return info

    def replace(self, name: str, query: QueryLike, given: Mapping[str, Any]) -> Talk[QueryInfo]:
        """Register a query under a name, or change the one that has it."""
        body = query_document(query, {**given, "name": name})
        body["name"] = name
        request = Request("PUT", f"/v1/queries/{quote(name)}", headers=_JSON, content=json_body(body))
        return fetch(request, self.retry, QueryInfo)

    def validate(
        self, query: QueryLike | None, sql: str | None, given: Mapping[str, Any]
    ) -> Talk[Validation]:
        """Validate a query without registering it."""
        document = validation_document(query_or_sql(query, sql), given)
        return self._post("/v1/queries/validate", document, Validation)

    def sql(self, script: str) -> Talk[SqlResults]:
        """Run SQL statements."""
        return run_sql(script, self.retry)

    def query_sql(self, query: str) -> Talk[QuerySql]:
        """Get a query's plan as SQL."""
        request = Request("GET", f"/v1/queries/{quote(query)}/plan", params={"format": "sql"})
        return fetch(request, self.retry, QuerySql)

    def try_query(self, query: QueryLike, rows: int, limit: int) -> Talk[TrialResult]:
        """Run a query on the last rows of its streams, without registering it."""
        document = validation_document(query, {})
        plan = {"plan": document} if "nodes" in document else document
        body = {key: value for key, value in plan.items() if key in ("plan", "sql")}
        body |= {"rows": rows, "limit": limit}
        return self._post("/v1/queries/try", body, TrialResult)

    def queries(self, state: str | None) -> Talk[list[QueryInfo]]:
        """List the queries, or those in a state."""
        return fetch_all("/v1/queries", self.retry, QueryInfo, {} if state is None else {"state": state})

    def query_info(self, query: str) -> Talk[QueryInfo]:
        """Get the state and metrics of a query."""
        return self._get(f"/v1/queries/{quote(query)}", QueryInfo)

    def change(self, query: str, changes: Mapping[str, Any]) -> Talk[QueryInfo]:
        """Change the desired state, the class, the times or the targets of a query."""
        named = {name.rstrip("_"): value for name, value in _plain(changes).items()}
        request = Request("PATCH", f"/v1/queries/{quote(query)}", headers=_JSON, content=json_body(named))
        return fetch(request, self.retry, QueryInfo)

    def delete_query(self, query: str) -> Talk[None]:
        """Delete a query and its results."""
        yield from exchange(Request("DELETE", f"/v1/queries/{quote(query)}"), self.retry)

    def query_plan(self, query: str) -> Talk[QueryPlan]:
        """Get a query's plan as it runs."""
        return self._get(f"/v1/queries/{quote(query)}/plan", QueryPlan)

    def qos(self, query: str) -> Talk[QosReport]:
        """Get a query's QoS targets, measured values, and the actions taken for it."""
        return self._get(f"/v1/queries/{quote(query)}/qos", QosReport)

    def pull(self, query: str, after: int | None, limit: int | None) -> Talk[PulledResults]:
        """Get a part of a query's results."""
        given = {"after": after, "limit": limit}
        params = {name: str(value) for name, value in given.items() if value is not None}
        request = Request("GET", f"/v1/queries/{quote(query)}/results", params=params)
        return fetch(request, self.retry, PulledResults)

    def policies(self) -> Talk[list[PolicyInfo]]:
        """List the scheduling policies."""
        return fetch_all("/v1/policies", self.retry, PolicyInfo, {})

    def scheduler(self) -> Talk[SchedulerSettings]:
        """Get the scheduling policy."""
        return self._get("/v1/scheduler", SchedulerSettings)

    def set_scheduler(
        self, policy: str, options: Mapping[str, Any], sources: SourceService | None = None
    ) -> Talk[SchedulerSettings]:
        """Change the scheduling policy."""
        content = json_body({"policy": policy, "options": dict(options), "sources": sources})
        request = Request("PUT", "/v1/scheduler", headers=_JSON, content=content)
        return fetch(request, self.retry, SchedulerSettings)

    def optimizer(self) -> Talk[OptimizerInfo]:
        """Get the optimizer's settings and the actions in force."""
        return self._get("/v1/optimizer", OptimizerInfo)

    def set_optimizer(self, changes: Mapping[str, Any]) -> Talk[OptimizerInfo]:
        """Change some settings of the optimizer; the others stay."""
        info = yield from self.optimizer()
        known = info.settings.model_dump(mode="json")
        content = json_body({**known, **_plain(changes)})
        request = Request("PUT", "/v1/optimizer", headers=_JSON, content=content)
        return (yield from fetch(request, self.retry, OptimizerInfo))

    def decisions(self, query: str | None) -> Talk[list[DecisionInfo]]:
        """List the optimizer's decisions."""
        params = {} if query is None else {"query": query}
        return fetch_all("/v1/optimizer/decisions", self.retry, DecisionInfo, params)

    def trace(self, seconds: float) -> Talk[SchedulerTrace]:
        """Record which operators run when, for some seconds."""
        request = Request("GET", "/v1/scheduler/trace", params={"seconds": str(seconds)})
        return fetch(request, self.retry, SchedulerTrace)

    def _get(self, path: str, model: Any) -> Talk[Any]:
        return fetch(Request("GET", path), self.retry, model)

    def _post(self, path: str, body: Mapping[str, Any], model: Any, once: bool = False) -> Talk[Any]:
        # The key lets the server recognise a retry, so that nothing is created twice.
        key = {"Idempotency-Key": uuid.uuid4().hex} if once else {}
        request = Request("POST", path, headers={**_JSON, **key}, content=json_body(body))
        return fetch(request, self.retry, model)

    def _append(self, stream: str, schema: Schema, tuples: Tuples) -> Talk[int]:
        batch = canonical(schema, tuples)
        head = encode_schema(schema)
        for encoded in encode_batch(batch, _MAX_BODY_BYTES):
            yield from exchange(
                Request(
                    "POST",
                    f"/v1/streams/{quote(stream)}/tuples",
                    headers={
                        "Content-Type": _ARROW,
                        # The key lets the server tell a retry from new rows.
                        "Idempotency-Key": uuid.uuid4().hex,
                    },
                    content=head + encoded.payload + _END_OF_STREAM,
                ),
                self.retry,
            )
        return int(batch.num_rows)


def _plain(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes as JSON values; models, and lists of models, may be among them."""
    return {name: _json_of(value) for name, value in changes.items()}


def _json_of(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [_json_of(one) for one in value] if isinstance(value, list | tuple) else value
