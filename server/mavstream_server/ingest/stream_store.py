"""The streams of a server: made, fed, kept and removed."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mavstream_protocol.instants import FIRST_INSTANT, LAST_INSTANT, format_instant
from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.typed_plan import StreamShape
from mavstream_protocol.wire.feed import StreamCredit
from mavstream_protocol.wire.resources import StreamInfo
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.columns.batch import BEGIN_OF_TIME
from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import (
    Conflict,
    NotFound,
    NotReady,
    OverQuota,
    ServiceError,
    TooMany,
    storage_problem,
)
from mavstream_server.core.settings import Settings
from mavstream_server.ingest.append_handle import Accepted, AppendHandle, Outcome, Repeated
from mavstream_server.ingest.background import Background, Inline
from mavstream_server.ingest.enqueuer import Enqueuer, Listener
from mavstream_server.ingest.flusher import Flusher
from mavstream_server.ingest.maintenance import StreamMaintenance
from mavstream_server.ingest.retention import Holder, Needed, StreamRetention
from mavstream_server.ingest.stream_writer import StreamWriter, has_rows
from mavstream_server.log import FrameKind, Sync

__all__ = ["Accepted", "AppendHandle", "IngestCounts", "Repeated", "StreamStore"]

_LOG = logging.getLogger("mavstream.streams")
_REMOVED = ".removed-"


class IngestCounts(NamedTuple):
    """What a stream took since the server started."""

    frames: int
    rows: int
    repeated: int


class StreamStore:
    """All streams of a server. Used from one thread, which nothing here blocks for long.

    `soon` schedules a call for the end of the current turn of the event loop (`loop.call_soon`), and `later`
    one in some seconds (`loop.call_later`): then flushes happen by themselves. Without the first, `flush` is
    called by hand, without the second no rows wait for others. With delivery `sync` the disk is waited for
    in the background. `news` is called after each append of one or more frames.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        clock: Clock,
        *,
        soon: Callable[[Callable[[], None]], object] | None = None,
        later: Callable[[float, Callable[[], None]], object] | None = None,
        background: Background | None = None,
        news: Callable[[], None] | None = None,
    ) -> None:
        self._directory = settings.streams_directory
        self._max_streams = settings.max_streams
        self._credit = settings.credit_bytes
        self._sync = Sync.GROUP if settings.delivery == "sync" else Sync.NEVER
        self._catalog = catalog
        self._clock = clock
        self._background = background or Inline()
        self._logs: dict[str, StreamWriter] = {}
        self._shapes: dict[str, StreamShape] = {}
        self._keeper = StreamRetention(self._logs, catalog, clock, settings.max_disk_bytes)
        self._appender = Flusher(self._keeper, clock, self._background)
        self._appender.soon, self._appender.later = soon, later
        if news is not None:
            self._appender.news = news
        self._ingest = Enqueuer(
            self._logs,
            self._appender,
            catalog,
            clock,
            self._credit,
            limited=settings.max_disk_bytes is not None,
        )
        self._housekeeper = StreamMaintenance(self._logs, self._appender, self._keeper, clock)
        self.offer = self._ingest.offer
        self.offer_columns = self._ingest.offer_columns
        self.join_cut = self._ingest.join_cut
        self.flush = self._appender.flush
        self.housekeeping = self._housekeeper.run
        self._open_all()

    def _open_all(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for leftover in self._directory.glob(_REMOVED + "*"):
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            for spec in self._catalog.streams():
                self._add(spec)
        except BaseException:
            self.close()
            raise
        self._keeper.count()

    def _add(self, spec: StreamSpec) -> StreamWriter:
        known = self._catalog.sequences(spec.name)
        log = StreamWriter(self._directory / spec.name, spec, self._sync, known)
        log.open(self._clock.monotonic())
        self._logs[spec.name] = log
        self._shapes[spec.name] = log.shape
        return log

    def on_news(self, news: Callable[[], None]) -> None:
        """Have this called after each append: the doorbell of the engines."""
        self._appender.news = news

    def on_credit(self, returned: Callable[[str], None]) -> None:
        """Have this called with a stream whose producers may go on."""
        self._appender.credit_returned = returned

    def on_need(self, needed: Needed, holder: Holder | None = None) -> None:
        """Be told what queries still need: the least position by stream, and the query that it is of."""
        self._keeper.needed = needed
        if holder is not None:
            self._keeper.holder = holder

    def now(self) -> int:
        """Return the arrival of what comes now: UTC in ns."""
        return self._clock.now()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all streams, sorted."""
        return tuple(sorted(self._logs))

    def __contains__(self, name: object) -> bool:
        return name in self._logs

    def shapes(self) -> Mapping[str, StreamShape]:
        """Return what plans must know of each stream; a view that follows changes."""
        return self._shapes

    def spec(self, name: str) -> StreamSpec:
        """Return a stream's specification; raises NotFound."""
        return self._log(name).spec

    def last_arrival(self, name: str) -> int:
        """Return when the last row or mark of a stream arrived, in ns; raises NotFound."""
        writer = self._log(name).writer
        return 0 if writer is None else writer.last_arrival

    def oldest_waiting(self) -> int | None:
        """Return the lowest arrival of what is to be appended, in ns; None if nothing waits with one."""
        frames = (item.frame for log in self._logs.values() for item in log.queue)
        return min((frame.arrival for frame in frames if frame is not None and frame.arrival), default=None)

    def first_segment(self, name: str) -> int | None:
        """Return the number of the oldest segment of a stream, None if it has no rows; raises NotFound."""
        log = self._log(name)
        if log.writer is None:
            return -1  # cannot be looked at
        return log.writer.segments[0].serial if log.writer.end > log.writer.begin else None

    def counts(self, name: str) -> IngestCounts:
        """Return what a stream took since the server started; raises NotFound."""
        log = self._log(name)
        return IngestCounts(log.frames, log.rows, log.repeated)

    @property
    def failures(self) -> dict[str, str]:
        """Streams that take nothing because of their files, and why."""
        return {name: log.failure.detail for name, log in self._logs.items() if log.failure is not None}

    def create(self, spec: StreamSpec, remember: Callable[[], None] | None = None) -> StreamInfo:
        """Make a stream; raises Conflict, TooMany, StorageFull, StorageFailed.

        `remember` writes to the catalog what belongs to it: both are kept, or neither.
        """
        if len(self._logs) >= self._max_streams and spec.name not in self._logs:
            raise TooMany(
                f"stream '{spec.name}' would be one more than the {self._max_streams} that are allowed: "
                "remove one, or raise MAVSTREAM_MAX_STREAMS",
                code="too_many_streams",
            )
        fresh, path = spec.name not in self._logs, self._directory / spec.name
        if fresh and path.exists():
            if has_rows(path):
                raise Conflict(
                    f"stream '{spec.name}' is not known, and '{path}' holds rows: move it away first",
                    code="stream_files_exist",
                )
            shutil.rmtree(path)  # what a death left of a stream that was never made
        try:
            with self._catalog.transaction():
                self._catalog.add_stream(spec)
                log = self._add(spec)
                if log.failure is not None:
                    raise log.failure
                if remember is not None:
                    remember()
        except BaseException:
            if fresh and spec.name in self._logs:
                self._forget(self._logs[spec.name])
                shutil.rmtree(path, ignore_errors=True)
            raise
        return self.info(spec.name)

    def remove(self, name: str, in_use_by: Sequence[str] = ()) -> None:
        """Remove a stream and its rows; raises NotFound, and Conflict while queries read it."""
        log = self._log(name)
        if in_use_by:
            shown = ", ".join(f"'{query}'" for query in in_use_by[:5])
            more = f" and {len(in_use_by) - 5} more" if len(in_use_by) > 5 else ""
            raise Conflict(
                f"stream '{name}' is read by {shown}{more}: remove these queries first", code="stream_in_use"
            )
        self._background.settle()
        log.close()
        # The files go first, because on a full disk the catalog needs the space; under another name, so that
        # a death on the way leaves the stream empty and not half of it.
        away = self._directory / f"{_REMOVED}{name}-{self._clock.now()}"
        try:
            if log.path.exists():
                log.path.rename(away)
            shutil.rmtree(away, ignore_errors=True)
            self._catalog.remove_stream(name)
        except (OSError, ServiceError) as error:
            log.open(self._clock.monotonic())
            if isinstance(error, OSError):
                raise storage_problem(f"the removal of stream '{name}'", error) from error
            raise
        self._forget(log)

    def _forget(self, log: StreamWriter) -> None:
        log.close()
        del self._logs[log.spec.name], self._shapes[log.spec.name]
        self._appender.drop(log, NotFound.stream(log.spec.name))
        self._keeper.count()

    def info(self, name: str) -> StreamInfo:
        """Return how a stream stands; raises NotFound."""
        log = self._log(name)
        writer, quota = log.writer, log.spec.quota
        watermark = BEGIN_OF_TIME if writer is None else writer.watermark
        held = log.held if isinstance(log.held, OverQuota) else None
        settled = None
        if watermark != BEGIN_OF_TIME:
            settled = format_instant(min(max(watermark, FIRST_INSTANT), LAST_INSTANT))
        return StreamInfo(
            name=name,
            spec=log.spec,
            position=0 if writer is None else writer.end,
            begin=0 if writer is None else writer.begin,
            bytes=log.nbytes,
            watermark=settled,
            producers={self._catalog.producer_name(p): last for p, last in sorted(log.last.items())},
            over_quota=held is not None or (quota is not None and log.nbytes > quota),
            held_by=self._keeper.held_by(log) if held is None else held.held_by,
        )

    async def ingest(
        self,
        producer: str | None,
        stream: str,
        sequence: int,
        batch: Any,
        nbytes: int,
        *,
        parks: bool = False,
    ) -> Outcome:
        """Offer a batch and wait for what becomes of it; needs `soon`. Raises what `offer` and tickets do."""
        future = asyncio.get_running_loop().create_future()

        def done(ticket: AppendHandle) -> None:
            if not future.done():
                future.set_result(None)

        ticket = self.offer(producer, stream, sequence, batch, nbytes, parks=parks, done=done)
        await future
        return ticket.result()

    def join(self, producer: str, stream: str, done: Listener | None = None) -> AppendHandle | None:
        """Have a stream's event time wait for a producer that is going to send; None if it does already."""
        log = self._log(stream)
        number = self._catalog.known_producer(producer)
        if log.spec.event_time is None or (number is not None and number in log.alive):
            return None
        return self._ingest.mark(FrameKind.JOIN, producer, stream, done)

    def end(self, producer: str, stream: str, done: Listener | None = None) -> AppendHandle:
        """Say, behind all it offered, that a producer sends no more; should it send again, it is back."""
        return self._ingest.mark(FrameKind.END, producer, stream, done)

    def complete(self, stream: str, done: Listener | None = None) -> AppendHandle:
        """Say, behind all that was offered, that a stream gets no more rows; it takes none from here on."""
        return self._ingest.mark(FrameKind.COMPLETE, None, stream, done)

    def set_readers(self, stream: str, reading: bool) -> None:
        """Say whether queries with windows read a stream: then its time passes even without rows.

        Matters where time is arrival only.
        """
        log = self._log(stream)
        log.clocked = reading and log.spec.event_time is None

    def credit(self, producer: str | None, stream: str) -> int:
        """Return how many bytes a producer may have under way on a stream; 0 while the stream is held."""
        log = self._log(stream)
        stopped = log.held is not None or log.failure is not None or log.completed or self._ingest.stopping
        return 0 if stopped else self._credit

    def last_sequence(self, producer: str, stream: str) -> int:
        """Return the last sequence of a producer that was, or could have been, acknowledged; 0 if none."""
        log = self._log(stream)
        number = self._catalog.known_producer(producer)
        return 0 if number is None else log.acknowledged(number)

    def standing(self, producer: str, stream: str) -> StreamCredit:
        """Return where a producer stands with a stream."""
        return StreamCredit(
            last_sequence=self.last_sequence(producer, stream), credit=self.credit(producer, stream)
        )

    def close(self) -> None:
        """Append what waits, refuse the rest, and close all logs; closing again does nothing."""
        self._ingest.stopping = True
        self._appender.soon = None
        self._background.settle()
        self.flush()
        self._background.settle()
        for log in self._logs.values():
            self._appender.drop(log, NotReady("the server is stopping: send it again later", code="stopping"))
            self._keeper.keep_sequences(log)
            try:
                log.close()
            except OSError as error:
                _LOG.error("stream not closed well", extra={"stream": log.spec.name, "reason": str(error)})
        self._logs.clear()
        self._shapes.clear()

    def _log(self, name: str) -> StreamWriter:
        log = self._logs.get(name)
        if log is None:
            raise NotFound.stream(name, self._logs)
        return log
