"""The stream store: creates, feeds, maintains and removes the streams of a server."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.typed_plan import StreamShape
from mavstream_protocol.wire.feed import StreamCredit
from mavstream_protocol.wire.resources import StreamInfo
from mavstream_protocol.wire.stream_change import StreamChange
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import (
    Conflict,
    NotFound,
    NotReady,
    ServiceError,
    TooMany,
    listed,
    storage_problem,
)
from mavstream_server.core.event_loop.background import Background, Inline
from mavstream_server.core.importance import AllEqual, Importance
from mavstream_server.core.namespace import Namespace
from mavstream_server.core.settings import Settings
from mavstream_server.core.storage.damage import Damage, DamageReport
from mavstream_server.ingest.append_handle import Accepted, AppendHandle, Repeated
from mavstream_server.ingest.arrival_clock import ArrivalClock
from mavstream_server.ingest.enqueuer import Enqueuer, Listener
from mavstream_server.ingest.flusher import CreditListener, Flusher, Timers
from mavstream_server.ingest.maintenance import StreamMaintenance
from mavstream_server.ingest.retention import NoReaders, Readers, StreamRetention
from mavstream_server.ingest.stream_writer import StreamWriter
from mavstream_server.ingest.streams.alteration import StreamAlteration
from mavstream_server.ingest.streams.files import has_rows
from mavstream_server.ingest.streams.info import stream_info
from mavstream_server.log import FrameKind, Sync

__all__ = ["Accepted", "AppendHandle", "IngestCounts", "Repeated", "StreamStore"]

_LOG = logging.getLogger("mavstream.streams")
_REMOVED = ".removed-"


class IngestCounts(NamedTuple):
    """Frames and rows that a stream accepted since the server started."""

    frames: int
    rows: int
    repeated: int


class StreamStore:
    """All streams of a server. Used from one thread, which nothing here blocks for long.

    With `timers` (an event loop) flushes happen by themselves; without, `flush` is called by hand. With
    delivery `sync` the disk is waited for in the background. `ring` is called after each round of appends:
    the doorbell of the engines. `readers` are the queries that still need rows. Streams are flushed in the
    order of their `importance`. `producers` is notified of streams that take rows again.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        clock: Clock,
        *,
        timers: Timers | None = None,
        background: Background | None = None,
        ring: Callable[[], None] = lambda: None,
        readers: Readers | None = None,
        importance: Importance | None = None,
        producers: CreditListener | None = None,
        damage: DamageReport | None = None,
        names: Namespace | None = None,
    ) -> None:
        self._directory = settings.streams_directory
        self._names = Namespace() if names is None else names
        self._max_streams = settings.max_streams
        self._credit = settings.credit_bytes
        self._sync = Sync.GROUP if settings.delivery == "sync" else Sync.NEVER
        self._catalog = catalog
        self.clock = clock = self._clock = ArrivalClock(clock, settings.max_clock_step * 1000)
        """The clock of arrival times, and of everything that is compared with them."""
        self._damage = damage or DamageReport()
        self._background = background or Inline()
        self._logs: dict[str, StreamWriter] = {}
        self._shapes: dict[str, StreamShape] = {}
        readers = readers or NoReaders()
        self.importance = importance or AllEqual()
        """How important the streams are."""
        limit = settings.max_disk_bytes
        self._retention = StreamRetention(self._logs, catalog, clock, readers, limit)
        self._flusher = Flusher(
            self._retention,
            clock,
            self._background,
            self.importance,
            timers=timers,
            ring=ring,
            producers=producers,
        )
        self.enqueuer = Enqueuer(
            self._logs, self._flusher, catalog, clock, self._credit, limited=limit is not None
        )
        """Accepts the frames of producers."""
        self._alteration = StreamAlteration(self._shapes, catalog, self._flusher, self._background)
        self._maintenance = StreamMaintenance(
            self._logs, self._flusher, self._retention, readers, self.importance, clock, self._credit
        )
        self._open_all()

    def _open_all(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for leftover in self._directory.glob(_REMOVED + "*"):
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            for spec in self._catalog.streams():
                self._add(spec, opening=True)
        except BaseException:
            self.close()
            raise
        self._retention.count()

    def _add(self, spec: StreamSpec, *, opening: bool = False) -> StreamWriter:
        known = self._catalog.sequences(spec.name)
        path = self._directory / spec.name
        if opening and not path.exists():
            self._damage.add(Damage(path, 0, 0, 0, 0, "the stream's files are missing: it starts empty"))
        log = StreamWriter(path, spec, self._sync, known, self._damage.add)
        log.owner = self._catalog.owners.of("stream", spec.name)
        log.open(self._clock.monotonic())
        self._alteration.complete(log)
        if log.writer is not None:
            self.clock.not_before(log.writer.last_arrival)
        self._logs[spec.name] = log
        self._shapes[spec.name] = log.shape
        self._names.add("stream", spec.name)
        return log

    def flush(self, now: int | None = None) -> None:
        """Append everything that was offered; `now` is UTC in ns."""
        self._flusher.flush(now)

    def maintain(self, now: int | None = None) -> None:
        """Run the periodic maintenance that is due; to be called about ten times a second."""
        self.clock.discipline()
        self._maintenance.run(now)

    def now(self) -> int:
        """Return the current time for arrivals: UTC in ns."""
        return self._clock.now()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all streams, sorted."""
        return tuple(sorted(self._logs))

    def __contains__(self, name: object) -> bool:
        return name in self._logs

    def shapes(self) -> Mapping[str, StreamShape]:
        """Return schema and event time of each stream; a live view."""
        return self._shapes

    def spec(self, name: str) -> StreamSpec:
        """Return a stream's specification; raises NotFound."""
        return self._log(name).spec

    def readable(self, name: str) -> StreamWriter:
        """Return what readers of a stream's rows need; raises NotFound."""
        return self._log(name)

    def last_arrival(self, name: str) -> int:
        """Return the arrival time of a stream's last row or mark, in ns; raises NotFound."""
        writer = self._log(name).writer
        return 0 if writer is None else writer.last_arrival

    def oldest_waiting(self) -> int | None:
        """Return the lowest arrival time of queued rows, in ns; None if no queued row has one."""
        frames = (item.frame for log in self._logs.values() for item in log.queue)
        return min((frame.arrival for frame in frames if frame is not None and frame.arrival), default=None)

    def first_segment(self, name: str) -> int | None:
        """Return the number of the oldest segment of a stream, None if it has no rows; raises NotFound."""
        log = self._log(name)
        if log.writer is None:
            return -1  # cannot be read
        return log.writer.segments[0].serial if log.writer.end > log.writer.begin else None

    def counts(self, name: str) -> IngestCounts:
        """Return the frames and rows that a stream accepted since the server started; raises NotFound."""
        log = self._log(name)
        return IngestCounts(log.frames, log.rows, log.repeated)

    @property
    def failures(self) -> dict[str, str]:
        """Streams that accept nothing because of their files, with the reasons."""
        return {name: log.failure.detail for name, log in self._logs.items() if log.failure is not None}

    def create(
        self, spec: StreamSpec, remember: Callable[[], None] | None = None, owner: str | None = None
    ) -> StreamInfo:
        """Create a stream; raises Conflict, TooMany, StorageFull, StorageFailed.

        `remember` writes to the catalog in the same transaction: both are stored, or neither.
        """
        if len(self._logs) >= self._max_streams and spec.name not in self._logs:
            raise TooMany(
                f"stream '{spec.name}' would be one more than the {self._max_streams} that are allowed: "
                "remove one, or raise MAVSTREAM_MAX_STREAMS",
                code="too_many_streams",
            )
        fresh, path = spec.name not in self._logs, self._directory / spec.name
        if fresh:
            self._names.require_free("stream", spec.name)
        if fresh and path.exists():
            if has_rows(path):
                raise Conflict(
                    f"stream '{spec.name}' is not known, and '{path}' holds rows: move it away first",
                    code="stream_files_exist",
                )
            shutil.rmtree(path)  # left by a crash before the stream was created
        try:
            with self._catalog.transaction():
                self._catalog.add_stream(spec, owner)
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

    def change(self, name: str, change: StreamChange) -> StreamInfo:
        """Add fields to a stream, or change its limits; raises NotFound, and what `StreamAlteration` does."""
        changed = self._alteration.change(self._log(name), change)
        return self.info(name).model_copy(update={"changed": changed})

    def remove(self, name: str, in_use_by: Sequence[str] = ()) -> None:
        """Remove a stream and its rows; raises NotFound, and Conflict while queries read it."""
        log = self._log(name)
        if in_use_by:
            raise Conflict(
                f"stream '{name}' is read by {listed(in_use_by)}: remove these queries first",
                code="stream_in_use",
            )
        self._background.settle()
        log.close()
        # The files go first, because on a full disk the catalog needs the space; they are renamed before, so
        # that a crash in between leaves the stream empty instead of damaged.
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
        self._names.remove("stream", log.spec.name)
        self._flusher.drop(log, NotFound.stream(log.spec.name))
        self._retention.count()

    def info(self, name: str) -> StreamInfo:
        """Return a description of a stream; raises NotFound."""
        return stream_info(self._log(name), self._retention, self._catalog.producers, self.importance)

    def owner(self, name: str) -> str | None:
        """Return the owner of a stream, or None if it belongs to all; raises NotFound."""
        return self._log(name).owner

    def sequences_of(self, producer: int) -> dict[str, int]:
        """Return the last sequence of a producer on each stream that it feeds."""
        return {name: log.last[producer] for name, log in sorted(self._logs.items()) if producer in log.last}

    def forget_producer(self, name: str, number: int) -> None:
        """End a producer on all streams and drop its sequences; raises Conflict if it has rows in flight."""
        fed = [log for log in self._logs.values() if number in log.last]
        if any(number in log.waiting or number in log.unsynced for log in fed):
            raise Conflict(f"producer '{name}' has rows in flight: try again soon", code="producer_busy")
        for log in fed:
            log.forget(number, self._clock.now())

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
        done: Listener | None = None,
    ) -> AppendHandle:
        """Queue a decoded record batch for the next flush; see `Enqueuer.offer_columns`."""
        return self.enqueuer.offer(
            producer, stream, sequence, batch, nbytes, parks=parks, stamp=stamp, done=done
        )

    def join(self, producer: str, stream: str, done: Listener | None = None) -> AppendHandle | None:
        """Have a stream's watermark wait for a producer before its first row; None if it does already."""
        log = self._log(stream)
        number = self._catalog.producers.number(producer)
        if log.spec.event_time is None or (number is not None and number in log.alive):
            return None
        return self.enqueuer.mark(FrameKind.JOIN, producer, stream, done)

    def end(self, producer: str, stream: str, done: Listener | None = None) -> AppendHandle:
        """Mark the end of a producer behind all it offered; if it sends again, it counts again."""
        return self.enqueuer.mark(FrameKind.END, producer, stream, done)

    def complete(self, stream: str, done: Listener | None = None) -> AppendHandle:
        """Mark a stream complete behind all that was offered; it accepts no rows from here on."""
        return self.enqueuer.mark(FrameKind.COMPLETE, None, stream, done)

    def credit(self, producer: str | None, stream: str) -> int:
        """Return the bytes that a producer may have in flight; 0 while the stream is held or overloaded."""
        log = self._log(stream)
        stopped = log.held is not None or log.failure is not None or log.completed or self.enqueuer.stopping
        return 0 if stopped or log.overload.active else self._credit

    def last_sequence(self, producer: str, stream: str) -> int:
        """Return a producer's last sequence that was, or could have been, acknowledged; 0 if none."""
        log = self._log(stream)
        number = self._catalog.producers.number(producer)
        return 0 if number is None else log.acknowledged(number)

    def producer_credit(self, producer: str, stream: str) -> StreamCredit:
        """Return a producer's last sequence and credit on a stream."""
        return StreamCredit(
            last_sequence=self.last_sequence(producer, stream), credit=self.credit(producer, stream)
        )

    def close(self) -> None:
        """Append what is queued, fail the rest, and close all logs; closing again does nothing."""
        self.enqueuer.stopping = True
        self._flusher.stop()
        self._background.settle()
        self.flush()
        self._background.settle()
        for log in self._logs.values():
            self._flusher.drop(log, NotReady("the server is stopping: send it again later", code="stopping"))
            self._retention.save_sequences(log)
            try:
                log.close()
            except OSError as error:
                _LOG.error("closing a stream failed", extra={"stream": log.spec.name, "reason": str(error)})
        self._logs.clear()
        self._shapes.clear()

    def _log(self, name: str) -> StreamWriter:
        log = self._logs.get(name)
        if log is None:
            raise NotFound.stream(name, self._logs)
        return log
