"""Requests of a runner to the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mavstream_protocol.wire.resources import QueryInfo
from mavstream_protocol.wire.runs import BATCH_KEY, ResultBatch, ResultsTaken, RunReport, RunTask
from mavstream_spark.source.connection import Connection, segment
from mavstream_spark.source.options import ServerOptions
from mavstream_spark.source.stored_rows import ARROW


@dataclass(slots=True)
class RunServer:
    """A server with queries to run. Used by one thread; all requests may be repeated."""

    connection: Connection

    @classmethod
    def at(cls, server: ServerOptions) -> RunServer:
        """Return a server, with a connection of its own."""
        return cls(Connection(server))

    def queries(self) -> list[QueryInfo]:
        """Return the queries with backend `spark`, ended ones included; raises RequestFailed."""
        found: list[QueryInfo] = []
        params: dict[str, object] = {"backend": "spark", "limit": 1000}
        while True:
            page = self._ask("GET", "/v1/queries", params)
            found += [QueryInfo.model_validate(item) for item in page["items"]]
            if page["next"] is None:
                return found
            params["after"] = page["next"]

    def report(self, query: str, report: RunReport) -> RunTask:
        """Report the state of a query; returns what is to be done. Raises RequestFailed."""
        body = report.model_dump_json().encode()
        return RunTask.model_validate(self._ask("PUT", f"/v1/queries/{segment(query)}/run", body=body))

    def publish(self, query: str, batch: ResultBatch, rows: pa.Table) -> ResultsTaken:
        """Publish a batch of results; raises RequestFailed."""
        schema = rows.schema.with_metadata({BATCH_KEY: batch.model_dump_json().encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_table(rows.replace_schema_metadata(schema.metadata))
        path = f"/v1/queries/{segment(query)}/results"
        answer = self.connection.request("POST", path, body=sink.getvalue().to_pybytes(), kind=ARROW)
        return ResultsTaken.model_validate_json(answer.body)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _ask(
        self, method: str, path: str, params: Mapping[str, object] | None = None, body: bytes | None = None
    ) -> Any:
        return json.loads(self.connection.request(method, path, params=params, body=body).body)
