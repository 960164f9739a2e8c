"""The write side of one stream: its log, its queue of pending appends, its producers' sequences."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.columns.batch import END_OF_TIME
from mavstream_server.columns.column import DTYPES
from mavstream_server.core.errors import (
    ServiceError,
    StorageFailed,
    StorageFull,
    is_full,
    storage_problem,
)
from mavstream_server.core.storage.damage import DamageListener, log_damage
from mavstream_server.ingest.append_handle import Accepted, AppendHandle, Outcome, PendingAppend, Repeated
from mavstream_server.ingest.overload import OverloadDetector
from mavstream_server.ingest.streams.files import open_log, segment_bytes
from mavstream_server.ingest.streams.widening import widened
from mavstream_server.log import (
    FrameKind,
    LogBusyError,
    LogEnd,
    LogError,
    LogOptions,
    LogWriter,
    NewFrame,
    Sync,
)
from mavstream_server.log.format.layout import FRAME_BYTES
from mavstream_server.log.format.segment import list_segments
from mavstream_server.log.format.shared_columns import RowSlice
from mavstream_server.log.syncing import sync_log

_LOG = logging.getLogger("mavstream.streams")

_LARGEST_RUN = 4096  # rows
NOBODY = 0
"""The producer number of rows without a producer; it has no sequences."""

Settlement = tuple[PendingAppend, Outcome | MavstreamError]
"""A pending append and its result, to be reported once the flush is over."""


class StreamWriter:
    """The state of one stream at ingest. It makes no decisions: enqueuer, flusher and retention do."""

    def __init__(
        self,
        path: Path,
        spec: StreamSpec,
        sync: Sync,
        known: Mapping[int, int],
        on_damage: DamageListener = log_damage,
    ) -> None:
        self.path = path
        self._sync = sync
        self._on_damage = on_damage
        self.writer: LogWriter | None = None
        self.use(spec)
        self.failure: ServiceError | None = None
        """Why the stream cannot be written to, or None."""
        self.broken = False
        """Whether the failure lasts until the server is restarted."""
        self.last: dict[int, int] = dict(known)
        """By producer: the last sequence in the log; never decreases."""
        self.unsaved: set[int] = set()
        """Producers whose last sequence is not in the catalog yet."""
        self.save_failed = False
        """Whether writing these sequences to the catalog failed and must be retried."""
        self.unsynced: dict[int, int] = {}
        """By producer: the first sequence that is in the log but not yet synced to disk."""
        self.queue: deque[PendingAppend] = deque()
        self.waiting: dict[int, int] = {}
        """By producer: bytes in the queue."""
        self.enqueued: dict[int, int] = {}
        """By producer: the last sequence in the queue, for producers that have frames there."""
        self.held: ServiceError | None = None
        """Why the queue is blocked, or None if it is not."""
        self.overload = OverloadDetector()
        """Whether rows arrive faster than they are read; then the producers get no credit."""
        self.syncing = False
        """Whether a thread is syncing the log; nothing is written until it returns."""
        self.synced: LogEnd | None = None
        """The end of the log when it was last synced, or opened; maintained with delivery `sync`."""
        self.completed = False
        self.owner: str | None = None
        """The name of the token that created the stream; None if it belongs to all."""
        self.alive: dict[int, int] = {}
        """Producers of this run that hold the watermark, with the monotonic time of their last frame."""
        self.recovered: tuple[int, ...] = ()
        """Producers of earlier runs that may still hold the watermark."""
        self.opened = 0
        self.frames = self.rows = self.repeated = 0

    def use(self, spec: StreamSpec) -> None:
        """Use a specification from here on; the log has its fields."""
        self.spec = spec
        self.schema = _shared(spec.schema())
        self.shape = StreamShape(self.schema, spec.event_time)
        self.options = LogOptions(segment_bytes=segment_bytes(spec), sync=self._sync, quota=spec.quota)
        if self.writer is not None:
            self.writer.options = self.options
        self._row_bytes = sum(DTYPES[field.type].itemsize + field.nullable for field in self.schema)
        # Whether frames are accepted without checking space or clock.
        self._plain = spec.quota is None and spec.max_ahead is None
        self._texts = any(field.type is FieldType.STRING for field in self.schema)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the log: more than the specification has if a crash interrupted their addition."""
        return self.schema.fields if self.writer is None else self.writer.description.schema.fields

    def open(self, monotonic: int) -> None:
        """Open the log, creating it if missing; other failures are kept in `failure`. Raises LogBusyError."""
        try:
            writer = self.writer = open_log(self.path, self.spec, self.options)
        except LogBusyError:
            raise
        except (OSError, LogError) as error:
            kind = StorageFull if is_full(error) else StorageFailed
            self.failure = kind(
                f"stream '{self.spec.name}' cannot be opened ({error}): it takes no rows until repaired"
            )
            _LOG.error("stream cannot be opened", extra={"stream": self.spec.name, "reason": str(error)})
            return
        for damage in writer.damage:
            self._on_damage(damage)
        if writer.cut_bytes:
            _LOG.warning(
                "incomplete write cut off", extra={"stream": self.spec.name, "bytes": writer.cut_bytes}
            )
        self.failure = None
        if self.synced is None:
            self.synced = LogEnd(writer.end, writer.watermark)
        self.completed = writer.watermark == END_OF_TIME
        self.opened = monotonic
        # Producers whose frames were all removed are neither in the log's state nor in its watermark.
        known = self.last.items()
        self.recovered = tuple(p for p, last in known if not last or writer.last_sequence(p))
        self.last = {producer: max(last, writer.last_sequence(producer)) for producer, last in known}
        self.unsaved |= set(self.last)

    def check_files(self) -> None:
        """Stop accepting rows if the log's files were deleted: they would be lost with the next restart."""
        if self.writer is None or self.syncing:
            return
        damage = self.writer.restore_header()
        if damage is not None:
            self._on_damage(damage)
        if not self.writer.deleted:
            return
        self.close()
        self.broken = True
        self.failure = StorageFailed(
            f"the files of stream '{self.spec.name}' in {self.path} were deleted: it takes no rows until "
            "they are restored and the server is restarted; remove the stream if its rows are not needed"
        )
        _LOG.error("stream files deleted", extra={"stream": self.spec.name, "directory": str(self.path)})

    def close(self) -> None:
        """Close the log; closing again does nothing."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def sync_files(self) -> None:
        """Sync the last segments to disk, whichever writer wrote them."""
        last = list_segments(self.path)[-1].serial
        sync_log(self.path, last - 1)

    @property
    def readable_end(self) -> LogEnd:
        """The end of what may be read: with delivery `sync`, of what the disk has. Raises ServiceError."""
        if self.writer is None:
            raise self.failure or StorageFailed(f"stream '{self.spec.name}' is closed: try again later")
        pending = self.syncing or self.broken
        if pending and self.synced is not None:
            return self.synced
        return LogEnd(self.writer.end, self.writer.watermark)

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return 0 if self.writer is None else self.writer.nbytes

    def expected(self, producer: int) -> int:
        """Return the sequence that a producer's next frame must have."""
        return (self.enqueued.get(producer) or self.last[producer]) + 1

    def acknowledged(self, producer: int) -> int:
        """Return a producer's last sequence that is as durable as an ack promises."""
        if producer in self.unsynced:
            return self.unsynced[producer] - 1
        return self.last.get(producer, 0)

    def cost(self, rows: int, nbytes: int) -> int:
        """Return an upper bound of a frame's bytes in the log; its texts are no longer than its message."""
        return FRAME_BYTES + 8 * len(self.schema) + rows * self._row_bytes + (nbytes if self._texts else 0)

    def rows_of(self, nbytes: int) -> int:
        """Return about how many rows take so many bytes."""
        return nbytes // max(self._row_bytes, 1)

    def put(self, item: PendingAppend) -> None:
        """Append an entry to the queue."""
        self.queue.append(item)
        self.waiting[item.producer] = self.waiting.get(item.producer, 0) + item.nbytes
        if item.frame is not None and item.producer:
            self.enqueued[item.producer] = item.handle.sequence

    def join_last(
        self,
        producer: int,
        sequence: int,
        rows: RowSlice,
        nbytes: int,
        done: Callable[[AppendHandle], object] | None,
    ) -> bool:
        """Join a producer's next rows to its last frame, if that is the last entry in the queue.

        They become one frame, which is in the log or not as a whole, and share one handle. Returns False if
        they cannot be joined; then the rows need an entry of their own.
        """
        if not self.queue or not self._plain:
            return False
        item = self.queue[-1]
        frame, handle = item.frame, item.handle
        if (
            item.producer != producer
            or frame is None
            or not isinstance(frame.columns, list)
            or frame.sequence + 1 != sequence
            or frame.size + rows.size > _LARGEST_RUN
            or not handle.notifies(done)
        ):
            return False
        frame.columns.append(rows)
        item.frame = NewFrame(frame.columns, frame.size + rows.size, producer, sequence, frame.arrival)
        item.nbytes += nbytes
        item.cost += self.cost(rows.size, nbytes) + 8 * rows.size
        handle.sequence = self.enqueued[producer] = sequence
        self.waiting[producer] += nbytes
        return True

    def dequeued(self, item: PendingAppend) -> None:
        """Update the accounts for an entry that left the queue."""
        left = self.waiting.get(item.producer, 0) - item.nbytes
        if left > 0:
            self.waiting[item.producer] = left
        else:
            self.waiting.pop(item.producer, None)
        # A producer without entries in the queue continues from its last sequence in the log.
        if self.enqueued.get(item.producer) == item.handle.sequence:
            del self.enqueued[item.producer]

    def widen_queue(self, added: Sequence[Field]) -> None:
        """Let frames that are queued have nulls in fields that were added."""
        for item in self.queue if added else ():
            if item.frame is not None:
                item.frame = widened(item.frame, added)

    def drop_queue(self, error: ServiceError) -> list[Settlement]:
        """Empty the queue; return the entries with the error they failed with."""
        dropped: list[Settlement] = [(item, error) for item in self.queue]
        self.queue.clear()
        self.waiting.clear()
        self.enqueued.clear()
        return dropped

    def write(
        self, items: Sequence[PendingAppend], arrival: int, monotonic: int
    ) -> tuple[list[Settlement], ServiceError | None]:
        """Append entries in order, consecutive frames in one write.

        Returns what was written and, if the rest failed, the error; the log is then open again or `failure`
        is set.
        """
        written: list[Settlement] = []
        start = 0
        try:
            while start < len(items):
                start = self._write_next(items, start, arrival, monotonic, written)
        except (OSError, LogError) as error:
            failed = storage_problem(f"stream '{self.spec.name}'", error)
            _LOG.error("append failed", extra={"stream": self.spec.name, "reason": str(error)})
            self.reopen()
            return written, failed
        return written, None

    def reopen(self) -> None:
        """Open the log again after a failed write closed it; everything appended before is there."""
        self.writer = None
        opened = self.opened
        self.open(opened)

    def mark(self, kind: FrameKind, arrival: int, producer: int = NOBODY) -> bool:
        """Append a mark ahead of the queue; return False if it failed, since a later mark replaces it."""
        assert self.writer is not None
        try:
            self.writer.mark(kind, arrival, producer=producer)
        except (OSError, LogError) as error:
            _LOG.warning("mark not written", extra={"stream": self.spec.name, "reason": str(error)})
            self.reopen()
            return False
        return True

    def forget(self, producer: int, arrival: int) -> None:
        """Drop the state of a producer that is removed; it no longer holds the watermark."""
        holds = producer in self.alive or producer in self.recovered
        if holds and self.spec.event_time is not None and self.writer is not None and not self.completed:
            self.mark(FrameKind.END, arrival, producer)
        for state in (self.last, self.alive):
            state.pop(producer, None)
        self.unsaved.discard(producer)
        self.recovered = tuple(each for each in self.recovered if each != producer)

    def _write_next(
        self,
        items: Sequence[PendingAppend],
        start: int,
        arrival: int,
        monotonic: int,
        written: list[Settlement],
    ) -> int:
        item, writer = items[start], self.writer
        assert writer is not None
        if item.mark is not None:
            position = writer.mark(item.mark, arrival, producer=item.producer)
            self.alive.pop(item.producer, None)
            if item.mark is FrameKind.JOIN:
                self.alive[item.producer] = monotonic
            written.append((item, Accepted(0, position, 0)))
            return start + 1
        if item.frame is None:
            sequence = item.handle.sequence
            written.append((item, Repeated(sequence, self.last[item.producer])))
            return start + 1
        frames, stop = self._consecutive_frames(items, start)
        position = writer.append_many(frames, arrival)
        anonymous = self._count(items[start:stop], position, monotonic, written)
        if anonymous and self.spec.event_time is not None:
            # A producer without a name cannot end its stream, so it must not hold the watermark back.
            writer.mark(FrameKind.IDLE, arrival, producer=NOBODY)
        return stop

    def _consecutive_frames(self, items: Sequence[PendingAppend], start: int) -> tuple[list[NewFrame], int]:
        """Return the frames of one write, at most a quarter of a segment, and the index behind them."""
        frames: list[NewFrame] = []
        room = self.options.segment_bytes // 4
        stop = start
        while stop < len(items) and (frame := items[stop].frame) is not None:
            room -= items[stop].cost
            if frames and room < 0:
                break
            frames.append(frame)
            stop += 1
        return frames, stop

    def _count(
        self, items: Sequence[PendingAppend], position: int, monotonic: int, written: list[Settlement]
    ) -> bool:
        """Record frames that were appended; return whether one had no producer."""
        anonymous, events, synced = False, self.spec.event_time is not None, self.options.sync is Sync.GROUP
        for item in items:
            frame, producer = item.frame, item.producer
            assert frame is not None
            if producer:
                self.last[producer] = frame.sequence
                self.unsaved.add(producer)
                if synced:
                    self.unsynced.setdefault(producer, item.handle.first)
                if events:
                    self.alive.pop(producer, None)
                    self.alive[producer] = monotonic
            else:
                anonymous = True
            written.append((item, Accepted(frame.sequence, position, frame.size)))
            position += frame.size
            self.rows += frame.size
            self.frames += item.handle.sequence - item.handle.first + 1
        return anonymous


@lru_cache(maxsize=1024)
def _shared(schema: Schema) -> Schema:
    """Return one object for equal schemas, so that multi-stream messages can compare them by identity."""
    return schema
