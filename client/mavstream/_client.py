"""The blocking client."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Unpack

import httpx

from mavstream._calls import Calls
from mavstream._convert.documents import QueryLike, StreamLike
from mavstream._convert.streams import StreamOptions
from mavstream._convert.tables import FieldsLike, TableLike
from mavstream._convert.tuples import Tuples
from mavstream._feeding.feed import Feed
from mavstream._feeding.producer import OnReject, Producer
from mavstream._query import Query
from mavstream._results.results import Results
from mavstream._results.row_page import RowPage
from mavstream._results.subscription import After, OnGap, Subscription
from mavstream._sql.results import SqlResults
from mavstream._transport.address import Address
from mavstream._transport.blocking import BlockingTransport
from mavstream._transport.retry import DEFAULT_RETRY, Retry
from mavstream_protocol import QueryClass
from mavstream_protocol.scheduling import LONGEST_TRACE, SchedulerSettings, SchedulerTrace, SourceService
from mavstream_protocol.wire.optimizer import DecisionInfo, OptimizerInfo
from mavstream_protocol.wire.resources import (
    PolicyInfo,
    ProducerInfo,
    QueryInfo,
    ServerInfo,
    StreamInfo,
    TableDetail,
    TableInfo,
    Validation,
)
from mavstream_protocol.wire.results import OnLag
from mavstream_protocol.wire.trials import TrialResult


class Client:
    """A client of a server: `with Client("http://127.0.0.1:8000") as client: ...`.

    Without an address it takes MAVSTREAM_URL, or the local server, with MAVSTREAM_TOKEN.
    `timeout` is in seconds, for every answer. Safe to share between threads.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retry: Retry = DEFAULT_RETRY,
    ) -> None:
        self._address = Address.chosen(url, token, timeout)
        self._http = httpx.Client(
            base_url=self._address.url, headers=self._address.headers, timeout=self._address.timeout
        )
        self._transport = BlockingTransport(self._http, self._address)
        self._calls = Calls(retry)

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._address.url

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the HTTP connections; feeds and results have their own `close`."""
        self._http.close()

    def info(self) -> ServerInfo:
        """Return the server's name, version and limits."""
        return self._transport.run(self._calls.info())

    def ready(self) -> bool:
        """Return whether the server takes work now; raises TransportError if it cannot be reached."""
        return self._transport.run(self._calls.ready())

    def stats(self) -> dict[str, Any]:
        """Return metrics of the classes and of the engine."""
        return self._transport.run(self._calls.stats())

    def plan(self) -> dict[str, Any]:
        """Return the global plan: the operators of all running queries."""
        return self._transport.run(self._calls.plan())

    def create_stream(self, spec: StreamLike | None = None, **given: Unpack[StreamOptions]) -> StreamInfo:
        """Create a stream from a specification, a dict, a file, or a name and keyword arguments.

        `fields="at:timestamp,temperature:float?"`, or `like=` rows, columns, Arrow or a data frame, whose
        fields it gets; the event time is then the only timestamp without nulls.
        """
        return self._transport.run(self._calls.create_stream(spec, given))

    def streams(self) -> list[StreamInfo]:
        """Return all streams."""
        return self._transport.run(self._calls.streams())

    def stream_info(self, name: str) -> StreamInfo:
        """Return the specification and the state of a stream."""
        return self._transport.run(self._calls.stream_info(name))

    def update_stream(self, name: str, **changes: Any) -> StreamInfo:
        """Add nullable fields (`add_fields=`), or change `retention`, `quota`, `max_ahead`, `idle_timeout`.

        What is not given stays as it is; None removes a limit. `changed` tells what is different now.
        """
        return self._transport.run(self._calls.update_stream(name, changes))

    def delete_stream(self, name: str) -> None:
        """Delete a stream and its rows; refused while queries read it."""
        self._transport.run(self._calls.delete_stream(name))

    def append(self, stream: str, tuples: Tuples) -> int:
        """Append rows, columns, Arrow or a data frame in one request; returns the number of rows.

        For a steady flow of rows, use `feed`.
        """
        return self._transport.run(self._calls.append(stream, tuples))

    def rows(self, stream: str, after: int | None = None, limit: int | None = None) -> RowPage:
        """Return a page of a stream's rows, from the oldest that is stored, or behind a position."""
        return self._transport.run(self._calls.rows(stream, after, limit))

    def complete(self, stream: str) -> StreamInfo:
        """Say that no more rows will follow: windows close, and queries over complete streams finish."""
        return self._transport.run(self._calls.complete(stream))

    def producers(self) -> list[ProducerInfo]:
        """Return all producers: their owners, last sequences, and when they were last used."""
        return self._transport.run(self._calls.producers())

    def delete_producer(self, name: str) -> None:
        """Delete a producer; its rows stay. Refused while it is connected."""
        self._transport.run(self._calls.delete_producer(name))

    def feed(
        self,
        producer: str,
        streams: Sequence[str] = (),
        *,
        timeout: float = 30.0,
        on_reject: OnReject | None = None,
    ) -> Feed:
        """Return a feed: rows over one websocket, acknowledged, and sent again after a reconnect.

        `on_reject` is called for rows that the server refuses; without it, `send` and `flush` raise Rejected.
        """
        calls = self._calls
        return Feed(
            Producer(producer, calls.schema, on_reject, timeout, calls.retry), streams, self._transport
        )

    def put_table(self, name: str, data: TableLike, fields: FieldsLike | None = None) -> TableInfo:
        """Store a table, or a new version of one: a file, rows, columns, Arrow or a data frame.

        Rows that arrive from now on join it. `fields="room:string,threshold:float?"` declares the fields of a
        new table, which are inferred from the rows otherwise.
        """
        return self._transport.run(self._calls.put_table(name, data, fields))

    def tables(self) -> list[TableInfo]:
        """Return all stored tables."""
        return self._transport.run(self._calls.tables())

    def table_info(self, name: str) -> TableDetail:
        """Return the state of a stored table, with the versions that are kept."""
        return self._transport.run(self._calls.table_info(name))

    def delete_table(self, name: str) -> None:
        """Delete a stored table and its versions; refused while queries join it."""
        self._transport.run(self._calls.delete_table(name))

    def put_class(
        self, name: str, priority: int, description: str = "", latency: str | None = None
    ) -> QueryClass:
        """Create or replace a class of queries, with a priority from 1 to 1000.

        `latency` ("20ms") is the latency target of its queries that have none of their own; None for none.
        """
        return self._transport.run(self._calls.put_class(name, priority, description, latency))

    def delete_class(self, name: str) -> None:
        """Delete a class; refused while queries that have not ended are in it."""
        self._transport.run(self._calls.delete_class(name))

    def classes(self) -> list[QueryClass]:
        """Return all classes."""
        return self._transport.run(self._calls.classes())

    def submit(
        self,
        query: QueryLike | None = None,
        *,
        sql: str | None = None,
        name: str | None = None,
        class_: str | None = None,
        qos: Any = None,
        mode: str | None = None,
        start_at: Any = None,
        stop_at: Any = None,
        from_: str | None = None,
        on_error: str | None = None,
        memory_limit: int | str | None = None,
        derive: bool | None = None,
        backend: str | None = None,
    ) -> Query:
        """Register a query: a flow, a plan, a specification, a dict, a JSON or YAML file, or `sql=`.

        Keyword arguments override the specification. A query without a name is named after its file, or by
        the server after the root of its plan. Raises Conflict if a given name is taken.
        """
        given = {
            "name": name,
            "class_": class_,
            "qos": qos,
            "mode": mode,
            "start_at": start_at,
            "stop_at": stop_at,
            "from_": from_,
            "on_error": on_error,
            "memory_limit": memory_limit,
            "derive": derive,
            "backend": backend,
        }
        info = self._transport.run(self._calls.submit(query, sql, given))
        return Query(self, info.id, info.admission)

    def replace(
        self,
        name: str,
        query: QueryLike,
        *,
        class_: str | None = None,
        qos: Any = None,
        stop_at: Any = None,
        **given: Any,
    ) -> Query:
        """Register a query under a name, or change the running one that has it to another specification.

        Its offsets go on; `given` are further parts of the specification, as for `submit`. Raises Conflict if
        the running query cannot be changed so; then it goes on as before.
        """
        parts = {"class_": class_, "qos": qos, "stop_at": stop_at, **given}
        info = self._transport.run(self._calls.replace(name, query, parts))
        return Query(self, info.id, info.admission)

    def validate(
        self, query: QueryLike | None = None, *, sql: str | None = None, mode: str | None = None
    ) -> Validation:
        """Return the schemas and paths of a query, or its errors, without starting it."""
        return self._transport.run(self._calls.validate(query, sql, {"mode": mode}))

    def sql(self, script: str) -> SqlResults:
        """Run SQL statements, separated by semicolons, and return a result for each.

        `CREATE TABLE ... AS FROM 'file'` reads the file here. A SELECT is checked, not run: register it with
        `submit(sql=...)`. Raises SqlError at the first statement that fails; those before it took effect.
        """
        return self._transport.run(self._calls.sql(script))

    def try_query(self, query: QueryLike, *, rows: int = 1000, limit: int = 100) -> TrialResult:
        """Run a query on the last `rows` rows of its streams and return at most `limit` answers.

        Nothing is registered. `query` is what `submit` takes; SQL is `{"sql": "SELECT ..."}`.
        """
        return self._transport.run(self._calls.try_query(query, rows, limit))

    def queries(self, state: str | None = None) -> list[QueryInfo]:
        """Return all queries, or those in a state."""
        return self._transport.run(self._calls.queries(state))

    def query(self, query: str) -> Query:
        """Return a handle for the query with this name or id; its first use checks whether it exists."""
        return Query(self, query)

    def policies(self) -> list[PolicyInfo]:
        """Return the available scheduling policies."""
        return self._transport.run(self._calls.policies())

    def scheduler(self) -> SchedulerSettings:
        """Return the current scheduling policy and its options."""
        return self._transport.run(self._calls.scheduler())

    def set_scheduler(
        self, policy: str, sources: SourceService | None = None, **options: Any
    ) -> SchedulerSettings:
        """Change the scheduling policy; running queries go on."""
        return self._transport.run(self._calls.set_scheduler(policy, options, sources))

    def optimizer(self) -> OptimizerInfo:
        """Return the optimizer's settings, the actions in force, and the status of QoS targets."""
        return self._transport.run(self._calls.optimizer())

    def set_optimizer(self, **changes: Any) -> OptimizerInfo:
        """Change settings of the optimizer, as `enabled=False` or `rules={"rank": False}`; the rest stays."""
        return self._transport.run(self._calls.set_optimizer(changes))

    def decisions(self, query: Query | str | None = None) -> list[DecisionInfo]:
        """Return the optimizer's decisions, or those that concern one query; the newest first."""
        id_ = query.id if isinstance(query, Query) else query
        return self._transport.run(self._calls.decisions(id_))

    def trace(self, seconds: float = 2.0) -> SchedulerTrace:
        """Record which operators run when, for at most 60 seconds; raises Conflict during another trace."""
        address = self._address
        # With a client of its own: this answer takes so many seconds longer than others.
        timeout = address.timeout + max(0.0, min(LONGEST_TRACE, seconds))
        with Client(address.url, token=address.token, timeout=timeout) as own:
            return own._transport.run(self._calls.trace(seconds))

    def results(
        self,
        query: Query | str,
        after: After = None,
        *,
        timeout: float | None = None,
        on_gap: OnGap = "warn",
        on_lag: OnLag | str = OnLag.GAP,
        datetimes: bool = False,
    ) -> Results:
        """Return the results of a query, from the oldest, behind an offset, or from now on (`"latest"`).

        They end when the query has ended. `timeout` is how long to wait for the next row, in seconds.
        With `datetimes`, rows have timestamps as datetime instead of text.
        """
        id_ = query if isinstance(query, str) else query.id
        subscription = Subscription(
            id_, after, on_gap, OnLag(on_lag), self._address.timeout, self._calls.retry, datetimes=datetimes
        )
        return Results(subscription, self._transport, timeout)
