"""One query on Spark: does what the server asks for, batch by batch, and reports.

All that matters is in the server: the rows, and the state behind the last batch. A run that is started again,
after any failure, goes on there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.schema import Field, Schema
from mavstream_protocol.streams import FieldSpec
from mavstream_protocol.tuples import arrow_schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_protocol.wire.resources import DesiredState
from mavstream_protocol.wire.runs import ResultBatch, RunReport, RunStream, RunTask
from mavstream_spark.errors import DataError, UnsupportedPlan
from mavstream_spark.runs.batches import MicroBatch, next_batch
from mavstream_spark.runs.frontiers import BEGIN_OF_TIME, END_OF_TIME
from mavstream_spark.runs.incremental import answers, stream_frame
from mavstream_spark.runs.pools import POOL, pool_of
from mavstream_spark.runs.server import RunServer
from mavstream_spark.runs.state import RunState, StreamEnd
from mavstream_spark.source.connection import RequestFailed
from mavstream_spark.source.options import read_options
from mavstream_spark.source.stored_rows import RowsLost, StoredRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG = logging.getLogger("mavstream.spark")

_FEW = 50_000
"""Rows that the driver reads by itself."""
_ATTEMPTS = 3
"""Failures of a batch in succession after which its query fails."""
_SILENT_S = 3.0
"""Seconds after the last report when a batch takes long."""
_FINAL = frozenset({"body_too_large", "invalid_tuples", "invalid_batch"})
"""Codes of refusals of a batch that would be refused again."""
_OVER = frozenset({"unknown_query", "wrong_backend"})
"""Codes that say that there is nothing to run any more."""


class RunOptions(NamedTuple):
    """How queries are run."""

    runner: str
    most_rows: int
    """The most new rows of a batch, of plans whose answers depend on one row alone."""
    partitions: int
    """The most tasks that read a stream."""


@dataclass(slots=True)
class QueryRun:
    """The run of one query. Used by one thread, which has its jobs in a group named after the query."""

    id: str
    server: RunServer
    spark: SparkSession
    options: RunOptions
    clock: Callable[[], float] = time.monotonic
    _plan: TypedPlan | None = None
    _epoch: int = 0
    _state: RunState | None = None
    _batch: int = 0
    _failures: int = 0
    _told: float = 0.0
    _progress: dict[str, float] = field(default_factory=dict)

    def step(self) -> bool:
        """Do what is to be done now; returns False when the query has ended or is gone.

        Raises RequestFailed if the server cannot be reached for the time that it is waited for.
        """
        try:
            task = self.server.report(self.id, self._report())
            self._told = self.clock()
            if task.final is not None:
                return False
            self._follow(task)
            self._work(task)
            return True
        except RequestFailed as error:
            if error.problem in _OVER:
                return False
            if error.problem in _FINAL:
                return self._fail(str(error))
            if error.problem in ("wrong_batch", "wrong_state"):
                self._state = None  # another runner, or an earlier request of this one: read it again
                return True
            raise
        except (UnsupportedPlan, RowsLost) as error:
            return self._fail(str(error))

    def report_for(self, server: RunServer) -> None:
        """Report while a batch takes long, for another thread; raises RequestFailed."""
        if self.clock() - self._told > _SILENT_S:
            server.report(self.id, self._report())

    def _report(self, failed: str | None = None) -> RunReport:
        paused = self._state is not None and self._state.paused
        return RunReport(runner=self.options.runner, paused=paused, failed=failed, progress=self._progress)

    def _follow(self, task: RunTask) -> None:
        """Take the plan and the state from the server, unless they are those that are known."""
        if self._plan is None:
            self._plan = typed_plan(task)
        if self._state is None or (self._batch, self._epoch) != (task.batch, task.epoch):
            self._state, self._batch, self._epoch = RunState.parse(task.state), task.batch, task.epoch

    def _work(self, task: RunTask) -> None:
        assert self._plan is not None
        assert self._state is not None
        state, ends = self._state, {name: _end(one) for name, one in task.streams.items()}
        if task.desired is DesiredState.PAUSED:
            if not state.paused:
                self._publish_state(replace(state, paused=True))
            return
        if state.paused:
            self._publish_state(state.skipping(ends))
            return
        batch = next_batch(self._plan, state, ends, self.options.most_rows)
        moves = (batch.state.positions, batch.state.watermarks) != (state.positions, state.watermarks)
        if not batch.ends and not (batch.answers and moves):
            self._state = state.noting(ends)  # nothing is published, so later batches start here, too
            return
        self._run(task, batch)

    def _run(self, task: RunTask, batch: MicroBatch) -> None:
        """Compute the answers of a batch and publish them; a failure is counted."""
        assert self._plan is not None
        begin = self.clock()
        context = self.spark.sparkContext
        context.setLocalProperty(POOL, pool_of(task.priority))
        context.setJobGroup(self.id, f"query {task.spec.name}, batch {self._batch + 1}", True)
        try:
            rows = self._answers(self._plan, batch) if batch.answers else _none(self._plan.schema)
        except DataError:
            raise
        except Exception as error:
            self._count_failure(error)
            return
        about = ResultBatch(
            batch=self._batch + 1, state=batch.state.json(), needs=dict(batch.needs), ends=batch.ends
        )
        taken = self.server.publish(self.id, about, rows)
        self._failures = 0
        if taken.repeated:
            self._state = None  # what was published may not be this: go on from what the server has
            return
        self._state, self._batch = batch.state, about.batch
        read = sum(one.stop - one.start for one in batch.ranges.values())
        self._progress = {
            "rows_read": self._progress.get("rows_read", 0.0) + read,
            "rows_read_again": float(sum(one.start - one.low for one in batch.ranges.values())),
            "results": self._progress.get("results", 0.0) + rows.num_rows,
            "batch_s": self.clock() - begin,
            "rows_behind": float(
                sum(one.end - batch.ranges[name].stop for name, one in task.streams.items())
            ),
        }

    def _answers(self, plan: TypedPlan, batch: MicroBatch) -> pa.Table:
        streams = {name: self._rows(name, batch) for name in batch.ranges}
        return answers(plan, batch, streams).toArrow()

    def _rows(self, stream: str, batch: MicroBatch) -> DataFrame:
        """Return the rows of a stream; few are read here, as starting tasks for them would take longer."""
        server, rows = self.server.connection.server, batch.ranges[stream]
        given = {
            "url": server.url,
            "stream": stream,
            "from": str(rows.low),
            "to": str(rows.stop),
            "metadata": "true",
            "timeout": str(server.timeout),
            "numPartitions": str(self.options.partitions),
            **({} if server.token is None else {"token": server.token}),
        }
        if rows.stop - rows.low <= _FEW:
            stored = StoredRows(read_options(given), self.server.connection)
            parts = list(stored.read(rows.low, rows.stop))
            table = pa.Table.from_batches(parts, None if parts else stored.extent().schema)
            read = self.spark.createDataFrame(table)
        else:
            read = self.spark.read.format("mavstream").options(**given).load()
        return stream_frame(read, rows.start, batch.skipped.get(stream, ()))

    def _publish_state(self, state: RunState) -> None:
        """Publish a state without results."""
        assert self._plan is not None
        needs = {name: marks[0].position for name, marks in state.marks.items()}
        about = ResultBatch(batch=self._batch + 1, state=state.json(), needs=needs)
        taken = self.server.publish(self.id, about, _none(self._plan.schema))
        self._state, self._batch = (None if taken.repeated else state), about.batch

    def _count_failure(self, error: Exception) -> None:
        """Note that a batch failed: it is tried again, some times if the server is there."""
        task = self.server.report(self.id, self._report())
        if task.final is not None or task.desired is not DesiredState.RUNNING:
            return  # its job was cancelled for that
        self._failures += 1
        _LOG.warning("batch %s of query '%s' failed: %s", self._batch + 1, self.id, _reason(error))
        if self._failures >= _ATTEMPTS:
            self._fail(_reason(error))

    def _fail(self, reason: str) -> bool:
        self.server.report(self.id, self._report(failed=reason))
        return False


def typed_plan(task: RunTask) -> TypedPlan:
    """Return the plan of a task, over the fields of its streams that the query sees."""
    shapes = {
        name: StreamShape(_schema(stream.fields), stream.event_time) for name, stream in task.streams.items()
    }
    return infer(task.spec.plan, shapes, {})


def _schema(fields: tuple[FieldSpec, ...]) -> Schema:
    return Schema(tuple(Field(spec.name, spec.type, spec.nullable) for spec in fields))


def _end(stream: RunStream) -> StreamEnd:
    watermark = BEGIN_OF_TIME if stream.watermark is None else stream.watermark
    latest = BEGIN_OF_TIME if stream.latest is None else stream.latest
    return StreamEnd(stream.end, END_OF_TIME if stream.complete else watermark, latest, stream.complete)


def _none(schema: Schema) -> pa.Table:
    return arrow_schema(schema).empty_table()


def _reason(error: Exception) -> str:
    """Return the first line of an error; those of Spark go on with plans and stacks."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:1000]
