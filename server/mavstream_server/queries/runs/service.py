"""Runs: a query of another backend gives its results in numbered batches, each with its state behind it.

The record of a batch is stored before its rows are appended, with the offset behind them. So after a crash
the result log says whether the batch was published, and a runner goes on behind the last one that was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

import pyarrow as pa

from mavstream_protocol.instants import format_instant
from mavstream_protocol.queries import ReadFrom
from mavstream_protocol.wire.query_run import QueryRun
from mavstream_protocol.wire.resources import ActualState
from mavstream_protocol.wire.runs import ResultBatch, ResultsTaken, RunReport, RunStream, RunTask
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.catalog.runs import RunRecord
from mavstream_server.core.errors import Conflict
from mavstream_server.core.settings import Settings
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.ingest.streams.ends import beginning, run_stream
from mavstream_server.queries.lifecycle.finishing import QueryFinisher
from mavstream_server.queries.query import Heard, Query
from mavstream_server.queries.stream_readers import StreamReaders
from mavstream_server.results.published import PublishedLogs
from mavstream_server.results.service import ResultService


class Published(NamedTuple):
    """A batch as it was sent."""

    about: ResultBatch
    rows: pa.RecordBatch
    """In the canonical form of the query's schema."""


class QueryRuns:
    """The runs of all queries of other backends. Lives in one event loop."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        readers: StreamReaders,
        streams: StreamStore,
        results: ResultService,
        finisher: QueryFinisher,
        priorities: Callable[[], Mapping[str, int]],
        now_us: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._streams = streams
        self._results = results
        self._finisher = finisher
        self._priorities = priorities
        self._now_us = now_us
        self._logs = PublishedLogs(settings)
        self._records: dict[str, RunRecord] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def begin(self, query: Query, read_from: ReadFrom) -> None:
        """Fix where a query begins to read, from when on the rows are retained."""
        places = {name: beginning(self._streams.readable(name), read_from) for name in sorted(query.streams)}
        positions = {name: place.position for name, place in places.items()}
        gaps = {name: place.gap for name, place in places.items() if place.gap is not None}
        state = {"positions": positions, "gaps": gaps}
        record = RunRecord(batch=0, end=0, state=state, needs=positions)
        with self._catalog.transaction():
            self._catalog.runs.put(query.id, record, None)
            self._catalog.starts.note_begun(query.id)
            query.record = query.record._replace(epoch=self._catalog.next_epoch(query.id))
        query.begun = True
        self._use(query, record)

    def resume(self, query: Query) -> None:
        """Go on with a query after a start of the server, behind the last batch that was published."""
        if query.final is not None or query.scheduled:
            return
        if query.plan is None:
            reason = "its plan does not fit its streams and tables any more"
            self._finisher.finish(query, ActualState.FAILED, reason)
            return
        stored = self._catalog.runs.of(query.id)
        if stored is None:
            self.begin(query, query.record.spec.from_)  # the server died while it was registered
            return
        # Without an earlier batch there is nothing that the log could tell.
        end = 0 if stored.before is None else self._logs.end(query)
        self._use(query, stored.published(end))
        if self._records[query.id].ends:
            self._finisher.finish(query, ActualState.FINISHED)

    def _use(self, query: Query, record: RunRecord) -> None:
        self._records[query.id] = record
        self._readers.keep(query, record.needs)

    def task(self, query: Query) -> RunTask:
        """Return what a runner is to do for a query; raises Conflict for one of the server's own engine."""
        record = self._record(query)
        return RunTask(
            id=query.id,
            spec=query.record.spec,
            desired=query.record.desired,
            final=None if query.final is None else query.final.value,
            priority=self._priorities().get(query.class_name, 1),
            epoch=query.epoch,
            batch=record.batch,
            state=record.state,
            streams=self._ends(query) if query.final is None else {},
        )

    def _ends(self, query: Query) -> dict[str, RunStream]:
        assert query.plan is not None
        schemas = {source.stream: source.schema for source in query.plan.sources}
        return {name: run_stream(self._streams.readable(name), schema) for name, schema in schemas.items()}

    def report(self, query: Query, report: RunReport) -> None:
        """Note what a runner tells; a query that cannot go on ends."""
        self._record(query)
        query.heard = Heard(report, self._now_us())
        if report.failed is not None and query.final is None:
            self._finisher.finish(query, ActualState.FAILED, report.failed)

    def view(self, query: Query) -> QueryRun | None:
        """Return the run of a query; None if it has none."""
        record = self._records.get(query.id)
        if record is None:
            return None
        if query.heard is None:
            return QueryRun(batch=record.batch, positions=record.needs)
        report, at_us = query.heard
        return QueryRun(
            batch=record.batch,
            runner=report.runner,
            heard=format_instant(at_us),
            positions=record.needs,
            progress=report.progress,
        )

    async def publish(self, query: Query, batch: Published) -> ResultsTaken:
        """Append the rows of a batch unless it was published before.

        Raises Conflict if it is not the next one or the query has ended, StorageFull, StorageFailed.
        """
        async with self._locks.setdefault(query.id, asyncio.Lock()):
            last, about = self._record(query), batch.about
            if about.batch <= last.batch:
                return ResultsTaken(accepted=0, repeated=True, batch=last.batch, end=last.end)
            self._check_next(query, about, last)
            rows = batch.rows.num_rows
            end = self._logs.end(query) + rows
            record = RunRecord(
                batch=about.batch, end=end, state=about.state, needs=about.needs, ends=about.ends
            )
            self._catalog.runs.put(query.id, record, last)
            if rows:
                await self._logs.append(query, batch.rows, self._now_us() * 1000)
            self._use(query, record)
            self._results.doorbell()
            if about.ends and query.final is None:
                self._finisher.finish(query, ActualState.FINISHED)
                self._logs.close(query.id)
            return ResultsTaken(accepted=rows, repeated=False, batch=about.batch, end=end)

    def _check_next(self, query: Query, about: ResultBatch, last: RunRecord) -> None:
        if query.final is not None:
            raise Conflict(
                f"query '{query.id}' has ended ({query.final.value}) and takes no more results",
                code="wrong_state",
            )
        if about.batch != last.batch + 1:
            raise Conflict(
                f"query '{query.id}' has batch {last.batch} and expects {last.batch + 1} next, got "
                f"{about.batch}: ask for its run, and go on from there",
                code="wrong_batch",
            )
        unknown = sorted(about.needs.keys() - query.streams)
        if unknown:
            raise Conflict(
                f"query '{query.id}' does not read stream '{unknown[0]}', but "
                f"{', '.join(sorted(query.streams))}: name these in 'needs'",
                code="unknown_stream",
            )

    def _record(self, query: Query) -> RunRecord:
        record = self._records.get(query.id)
        if record is not None:
            return record
        if query.outside:
            raise Conflict(f"query '{query.id}' is {query.state.value} and has no run", code="wrong_state")
        raise Conflict(
            f"query '{query.id}' has backend '{query.record.spec.backend.value}': the server runs it",
            code="wrong_backend",
        )

    def forget(self, id_: str) -> None:
        """Close the results of a query that is removed."""
        self._records.pop(id_, None)
        self._logs.close(id_)

    def close(self) -> None:
        """Close all result logs."""
        self._logs.close_all()
