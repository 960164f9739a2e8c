"""The enqueuer: checks frames and marks of producers and queues them for the next flush."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mavstream_protocol.instants import LAST_INSTANT, format_instant
from mavstream_protocol.quantities import format_duration, format_size
from mavstream_protocol.tuples import decode_batch
from mavstream_protocol.tuples.findings import MOST_TOLD, Findings
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.columns.arrow import columns_from_arrow
from mavstream_server.columns.column import Column
from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import (
    Conflict,
    NotFound,
    NotReady,
    Refused,
    SequenceGap,
    TooLarge,
    TooMany,
)
from mavstream_server.ingest.append_handle import (
    AppendHandle,
    Outcome,
    PendingAppend,
    Repeated,
    outcome_of,
)
from mavstream_server.ingest.flusher import Flusher
from mavstream_server.ingest.stream_writer import NOBODY, StreamWriter
from mavstream_server.log import FrameKind, NewFrame
from mavstream_server.log.format.shared_columns import RowSlice

Listener = Callable[[AppendHandle], object]


class Enqueuer:
    """Accepts appends to all streams. A producer has at most twice its credit queued per stream."""

    def __init__(
        self,
        logs: Mapping[str, StreamWriter],
        flusher: Flusher,
        catalog: Catalog,
        clock: Clock,
        credit_bytes: int,
        *,
        limited: bool = False,
    ) -> None:
        """`limited` says that there is a limit on the disk space of all streams, checked at the flush."""
        self._limited = limited
        self._logs = logs
        self._flusher = flusher
        self._catalog = catalog
        self._producers = catalog.producers
        self._clock = clock
        self._credit = credit_bytes
        self.stopping = False

    def offer(
        self,
        producer: str | None,
        stream: str,
        sequence: int,
        batch: Any,
        nbytes: int,
        *,
        parks: bool = True,
        stamp: int = 0,
        skips: bool = False,
        done: Listener | None = None,
    ) -> AppendHandle:
        """Queue a decoded record batch for the next flush; otherwise like `offer_columns`."""
        schema = self._open_log(stream).schema
        if batch.num_columns < len(schema):
            batch = decode_batch(schema, batch)  # the stream has got fields since the batch was decoded
        columns = columns_from_arrow(batch, schema)
        return self.offer_columns(
            producer,
            stream,
            sequence,
            columns,
            batch.num_rows,
            nbytes,
            parks=parks,
            stamp=stamp,
            skips=skips,
            done=done,
        )

    async def ingest(
        self,
        producer: str | None,
        stream: str,
        sequence: int,
        batch: Any,
        nbytes: int,
        *,
        stamp: int = 0,
        skips: bool = False,
    ) -> Outcome:
        """Offer a batch that does not wait for space, and wait for its outcome; needs `timers`.

        Raises what `offer` and handles raise.
        """
        return await outcome_of(
            lambda done: self.offer(
                producer, stream, sequence, batch, nbytes, parks=False, stamp=stamp, skips=skips, done=done
            )
        )

    def offer_columns(
        self,
        producer: str | None,
        stream: str,
        sequence: int,
        columns: Mapping[str, Column] | list[RowSlice],
        rows: int,
        nbytes: int,
        *,
        arrival: int = 0,
        parks: bool = True,
        gathers: bool = False,
        stamp: int = 0,
        skips: bool = False,
        done: Listener | None = None,
    ) -> AppendHandle:
        """Queue rows of the stream's schema for the next flush.

        `nbytes` is the size of their message; `arrival` is its arrival time in ns, 0 for the time of the
        flush. Rows with `gathers` may wait a short time for others. Without a producer the sequence is 0, and
        `stamp` identifies the frame in the log, if it is not 0. With `skips` sequences may be left out.
        Errors are raised here or set on the handle; `done` is called when the handle is settled, which for a
        repeated frame may be before this returns.
        Raises NotFound, SequenceGap, InvalidTuples, Conflict, TooLarge, TooMany, NotReady, StorageFull.
        """
        log = self._open_log(stream)
        number = self._number(log, producer, sequence)
        handle = AppendHandle(producer, stream, sequence, done)
        if number:
            expected = log.expected(number)
            if sequence < expected:
                return self._repeat(log, number, handle)
            if sequence > expected and not skips:
                raise SequenceGap(str(producer), stream, expected, sequence)
        if log.spec.max_ahead is not None:
            _check_ahead(log, columns, self._clock.now())
        cost = log.cost(rows, nbytes)
        self._check_room(log, number, nbytes, cost, parks)
        frame = NewFrame(columns, rows, number, sequence or stamp, arrival)
        self._flusher.put(
            log, PendingAppend(handle, number, frame, None, nbytes, cost, parks, skips), gathers=gathers
        )
        return handle

    def join_rows(
        self, producer: str, stream: str, sequence: int, rows: RowSlice, nbytes: int, done: Listener
    ) -> bool:
        """Join rows to the queued frame with their producer's rows before them; both become one frame.

        Returns False if they cannot be joined; then they must be offered.
        """
        log, number = self._logs.get(stream), self._producers.number(producer)
        if log is None or number is None or log.schema is not rows.columns.schema or self._limited:
            return False
        room = 2 * self._credit - log.waiting.get(number, 0)
        return nbytes <= room and log.join_last(number, sequence, rows, nbytes, done)

    def mark(
        self, kind: FrameKind, producer: str | None, stream: str, done: Listener | None = None
    ) -> AppendHandle:
        """Queue a mark behind everything offered before it; raises Conflict if the stream is complete."""
        log = self._open_log(stream)
        number = NOBODY if producer is None else self._known(log, producer)
        handle = AppendHandle(producer, stream, 0, done)
        self._flusher.put(log, PendingAppend(handle, number, mark=kind, parks=True))
        if kind is FrameKind.COMPLETE:
            log.completed = True
        return handle

    def _open_log(self, stream: str) -> StreamWriter:
        log = self._logs.get(stream)
        if log is None:
            raise NotFound.stream(stream, self._logs)
        if log.completed:
            raise Conflict(
                f"stream '{stream}' was completed and takes no more rows: use another stream",
                code="stream_complete",
            )
        if log.failure is not None:
            raise log.failure
        if self.stopping:
            raise NotReady("the server is stopping: connect again later", code="stopping")
        return log

    def _number(self, log: StreamWriter, producer: str | None, sequence: int) -> int:
        if producer is None:
            if sequence:
                raise Refused(f"got frame {sequence} without a producer: name one, or send no sequence")
            return NOBODY
        if sequence < 1:
            raise Refused(
                f"producer '{producer}' sent sequence {sequence} on stream '{log.spec.name}': "
                "count its frames from 1",
                code="invalid_sequence",
            )
        return self._known(log, producer)

    def _known(self, log: StreamWriter, producer: str) -> int:
        """Return a producer's number; its first frame on a stream is recorded in the catalog."""
        number = self._producers.register(producer)
        if number not in log.last:
            self._catalog.save_sequences(log.spec.name, {number: 0})
            log.last[number] = 0
        return number

    def _repeat(self, log: StreamWriter, number: int, handle: AppendHandle) -> AppendHandle:
        log.repeated += 1
        # Acked at once if the original was; otherwise behind the original, which may still fail.
        if handle.sequence <= log.acknowledged(number):
            handle.settle(Repeated(handle.sequence, log.acknowledged(number)))
        else:
            self._flusher.put(log, PendingAppend(handle, number, parks=True))
        return handle

    def _check_room(self, log: StreamWriter, number: int, nbytes: int, cost: int, parks: bool) -> None:
        quota = log.spec.quota
        if quota is not None and cost > quota:
            raise TooLarge(
                f"the frame takes up to {format_size(cost)} and stream '{log.spec.name}' may have "
                f"{format_size(quota)} in all: send smaller frames"
            )
        if log.held is not None and not parks:
            raise log.held
        waits = log.waiting.get(number, 0)
        # Twice, to tolerate producers that count the bytes of their messages slightly differently.
        if waits and waits + nbytes > 2 * self._credit:
            if log.held is not None:
                raise log.held
            raise TooMany(
                f"{format_size(waits + nbytes)} are in flight to stream '{log.spec.name}', the credit is "
                f"{format_size(self._credit)}: wait for acks",
                code="over_credit",
            )


def _check_ahead(log: StreamWriter, columns: Mapping[str, Column] | list[RowSlice], now: int) -> None:
    """Raise InvalidTuples if rows are further in the future than their stream allows."""
    ahead, name = log.spec.max_ahead, log.spec.event_time
    assert ahead is not None
    assert name is not None
    if isinstance(columns, list):
        ((shared, start, rows, _),) = columns
        times = shared.values(name)[start : start + rows]
    else:
        times = columns[name].values
    latest = now // 1000 + ahead
    if not len(times) or int(times.max()) <= latest:
        return
    findings = Findings()
    for row in np.flatnonzero(times > latest)[:MOST_TOLD].tolist():
        time = min(int(times[row]), LAST_INSTANT)
        findings.in_row(
            row,
            name,
            "too_far_ahead",
            f"'{name}' is {format_instant(time)} and may be at most {format_duration(ahead)} ahead of the "
            f"server's clock, which says {format_instant(now // 1000)}: check the producer's clock",
        )
    findings.raise_if_any()
