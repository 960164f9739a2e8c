"""Enqueuer: frames and marks as producers offer them, checked before they are queued."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mavstream_protocol.instants import LAST_INSTANT, format_instant
from mavstream_protocol.quantities import format_duration, format_size
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
from mavstream_server.ingest.append_handle import AppendHandle, PendingAppend, Repeated
from mavstream_server.ingest.flusher import Flusher
from mavstream_server.ingest.stream_writer import NOBODY, StreamWriter
from mavstream_server.log import FrameKind, NewFrame
from mavstream_server.log.format.shared_columns import RowSlice

Listener = Callable[[AppendHandle], object]


class Enqueuer:
    """The door of all streams. What a producer has waiting inside is at most twice its credit."""

    def __init__(
        self,
        logs: Mapping[str, StreamWriter],
        appender: Flusher,
        catalog: Catalog,
        clock: Clock,
        credit_bytes: int,
        *,
        limited: bool = False,
    ) -> None:
        """`limited` says that all streams together have a limit on disk, which is looked at in the queue."""
        self._limited = limited
        self._logs = logs
        self._appender = appender
        self._append = appender.put
        self._catalog = catalog
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
        done: Listener | None = None,
    ) -> AppendHandle:
        """Queue a checked record batch for the next flush; else as `offer_columns`."""
        columns = columns_from_arrow(batch, self._open_log(stream).schema)
        return self.offer_columns(
            producer, stream, sequence, columns, batch.num_rows, nbytes, parks=parks, done=done
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
        done: Listener | None = None,
    ) -> AppendHandle:
        """Queue rows of the stream's schema for the next flush.

        `nbytes` is the size of the message they came in; `arrival` is when that was, in ns, and 0 makes it
        the time of the flush. `gathers` is for rows that may wait a little for others. Without a producer's
        name the sequence is 0. What cannot be taken raises here, or is told by its ticket; `done` is called
        when that is settled, which for a repetition is before this returns.
        Raises NotFound, SequenceGap, InvalidTuples, Conflict, TooLarge, TooMany, NotReady, StorageFull.
        """
        log = self._open_log(stream)
        number = self._number(log, producer, sequence)
        ticket = AppendHandle(producer, stream, sequence, done)
        if number:
            expected = log.expected(number)
            if sequence < expected:
                return self._repeat(log, number, ticket)
            if sequence > expected:
                raise SequenceGap(str(producer), stream, expected, sequence)
        if log.spec.max_ahead is not None:
            _check_ahead(log, columns, self._clock.now())
        cost = log.cost(rows, nbytes)
        self._check_room(log, number, nbytes, cost, parks)
        frame = NewFrame(columns, rows, number, sequence, arrival)
        self._append(log, PendingAppend(ticket, number, frame, None, nbytes, cost, parks), gathers=gathers)
        return ticket

    def join_cut(
        self, producer: str, stream: str, sequence: int, cut: RowSlice, nbytes: int, done: Listener
    ) -> bool:
        """Join rows to those that their producer offered before and that still wait: they become one frame.

        False if that cannot be done; then they are to be offered.
        """
        log, number = self._logs.get(stream), self._catalog.known_producer(producer)
        if log is None or number is None or log.schema is not cut.pack.schema or self._limited:
            return False
        room = 2 * self._credit - log.waiting.get(number, 0)
        return nbytes <= room and log.join_last(number, sequence, cut, nbytes, done)

    def mark(
        self, kind: FrameKind, producer: str | None, stream: str, done: Listener | None = None
    ) -> AppendHandle:
        """Queue a mark behind what was offered before it; Conflict if the stream is complete."""
        log = self._open_log(stream)
        number = NOBODY if producer is None else self._known(log, producer)
        ticket = AppendHandle(producer, stream, 0, done)
        self._append(log, PendingAppend(ticket, number, mark=kind, parks=True))
        if kind is FrameKind.COMPLETE:
            log.completed = True
        return ticket

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
                raise Refused(f"frame {sequence} came without a producer: name one, or send no sequence")
            return NOBODY
        if sequence < 1:
            raise Refused(
                f"producer '{producer}' sent sequence {sequence} on stream '{log.spec.name}': "
                "count its frames from 1",
                code="invalid_sequence",
            )
        return self._known(log, producer)

    def _known(self, log: StreamWriter, producer: str) -> int:
        """Return a producer's number; its first appearance on a stream is kept, so that it is found again."""
        number = self._catalog.producer_id(producer)
        if number not in log.last:
            self._catalog.keep_sequences(log.spec.name, {number: 0})
            log.last[number] = 0
        return number

    def _repeat(self, log: StreamWriter, number: int, ticket: AppendHandle) -> AppendHandle:
        log.repeated += 1
        # Acked at once if the first one was; else behind it, for it may yet fail.
        if ticket.sequence <= log.acknowledged(number):
            ticket.settle(Repeated(ticket.sequence, log.acknowledged(number)))
        else:
            self._append(log, PendingAppend(ticket, number, parks=True))
        return ticket

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
        # Twice, because whose count differs a little from ours is not at fault.
        if waits and waits + nbytes > 2 * self._credit:
            if log.held is not None:
                raise log.held
            raise TooMany(
                f"{format_size(waits + nbytes)} are under way to stream '{log.spec.name}', the credit is "
                f"{format_size(self._credit)}: wait for acks",
                code="over_credit",
            )


def _check_ahead(log: StreamWriter, columns: Mapping[str, Column] | list[RowSlice], now: int) -> None:
    """Raise InvalidTuples if rows are from further in the future than their stream allows."""
    ahead, name = log.spec.max_ahead, log.spec.event_time
    assert ahead is not None
    assert name is not None
    if isinstance(columns, list):
        ((pack, start, rows, _),) = columns
        times = pack.values(name)[start : start + rows]
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
