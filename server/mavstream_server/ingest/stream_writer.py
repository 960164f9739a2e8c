"""One stream at ingest: its log, what waits to be appended, and how far its producers are."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.schema import FieldType, Schema
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
from mavstream_server.ingest.append_handle import Accepted, AppendHandle, Outcome, PendingAppend, Repeated
from mavstream_server.log import (
    FrameKind,
    LogBusyError,
    LogDescription,
    LogError,
    LogOptions,
    LogReader,
    LogWriter,
    NewFrame,
    Sync,
)
from mavstream_server.log.format.layout import FRAME_BYTES
from mavstream_server.log.format.segment import list_segments
from mavstream_server.log.format.shared_columns import RowSlice

_LOG = logging.getLogger("mavstream.streams")

LARGEST_SEGMENT = 64 << 20
SMALLEST_SEGMENT = 64 << 10
_LARGEST_RUN = 4096  # rows
NOBODY = 0
"""The producer of rows that came without a name; it has no sequences."""

Told = tuple[PendingAppend, Outcome | MavstreamError]


def segment_bytes(spec: StreamSpec) -> int:
    """Return how large a stream's segments are: whole ones are removed, so some must fit its limits."""
    limits = [spec.quota, spec.retention.bytes if spec.retention else None]
    wanted = min([limit // 8 for limit in limits if limit is not None], default=LARGEST_SEGMENT)
    return min(max(wanted, SMALLEST_SEGMENT), LARGEST_SEGMENT)


class StreamWriter:
    """The state of one stream. Decides nothing: the store asks and tells."""

    def __init__(self, path: Path, spec: StreamSpec, sync: Sync, known: Mapping[int, int]) -> None:
        self.path = path
        self.spec = spec
        self.schema = _shared(spec.schema())
        self.shape = StreamShape(self.schema, spec.event_time)
        self.options = LogOptions(segment_bytes=segment_bytes(spec), sync=sync, quota=spec.quota)
        self.writer: LogWriter | None = None
        self.failure: ServiceError | None = None
        """Why the stream takes nothing."""
        self.broken = False
        """Whether only a new start of the server can mend that."""
        self.last: dict[int, int] = dict(known)
        """The last sequence in the log of every producer that ever fed the stream; never falls."""
        self.unkept: set[int] = set()
        """Producers whose last sequence is not in the catalog yet."""
        self.owing = False
        """Whether it should be there, and could not be written."""
        self.unsynced: dict[int, int] = {}
        """The first sequence of a producer that is in the log and not yet known to be on disk."""
        self.queue: deque[PendingAppend] = deque()
        self.waiting: dict[int, int] = {}
        """Bytes of each producer that are in the queue."""
        self.offered: dict[int, int] = {}
        """The last sequence in the queue of each producer that has frames there."""
        self.held: ServiceError | None = None
        """Why the queue does not move, if it does not."""
        self.syncing = False
        """Whether a thread waits for the disk: the writer is left alone until it is back."""
        self.completed = False
        self.clocked = False
        """Whether somebody waits for this stream's time to pass."""
        self.alive: dict[int, int] = {}
        """Producers of this run that hold the watermark, by when (monotonic) they last sent."""
        self.recovered: tuple[int, ...] = ()
        """Producers of earlier runs that may still hold the watermark."""
        self.opened = 0
        self.frames = self.rows = self.repeated = 0
        self._row_bytes = sum(DTYPES[field.type].itemsize + field.nullable for field in self.schema)
        # Whether frames are taken as they come, without a look at room or clock.
        self._plain = spec.quota is None and spec.max_ahead is None
        self._texts = any(field.type is FieldType.STRING for field in self.schema)

    def open(self, monotonic: int) -> None:
        """Open the log, creating it if it is not there; a failure is kept. Raises LogBusyError."""
        try:
            description = LogDescription(self.schema, self.spec.event_time, self.spec.lateness)
            writer = self.writer = LogWriter(self.path, description, self.options)
        except LogBusyError:
            raise
        except (OSError, LogError) as error:
            kind = StorageFull if is_full(error) else StorageFailed
            self.failure = kind(
                f"stream '{self.spec.name}' cannot be opened ({error}): it takes no rows until that is mended"
            )
            _LOG.error("stream cannot be opened", extra={"stream": self.spec.name, "reason": str(error)})
            return
        self.failure = None
        self.completed = writer.watermark == END_OF_TIME
        self.opened = monotonic
        # Those whose frames are all gone are no longer in the log's memory, nor in its watermark.
        known = self.last.items()
        self.recovered = tuple(p for p, last in known if not last or writer.last_sequence(p))
        self.last = {producer: max(last, writer.last_sequence(producer)) for producer, last in known}
        self.unkept |= set(self.last)

    def close(self) -> None:
        """Close the log; closing again does nothing."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def sync_files(self) -> None:
        """Bring what the last segments have to disk, whoever wrote it."""
        for name in list_segments(self.path)[-2:]:
            fd = os.open(name.within(self.path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return 0 if self.writer is None else self.writer.nbytes

    def expected(self, producer: int) -> int:
        """Return the sequence that a producer's next frame must have."""
        return (self.offered.get(producer) or self.last[producer]) + 1

    def acknowledged(self, producer: int) -> int:
        """Return the last sequence of a producer that is as safe as an ack promises."""
        if producer in self.unsynced:
            return self.unsynced[producer] - 1
        return self.last.get(producer, 0)

    def cost(self, rows: int, nbytes: int) -> int:
        """Return what a frame takes in the log at most; its texts are as long as its message at most."""
        return FRAME_BYTES + 8 * len(self.schema) + rows * self._row_bytes + (nbytes if self._texts else 0)

    def put(self, item: PendingAppend) -> None:
        """Add to the queue."""
        self.queue.append(item)
        self.waiting[item.producer] = self.waiting.get(item.producer, 0) + item.nbytes
        if item.frame is not None and item.producer:
            self.offered[item.producer] = item.ticket.sequence

    def join_last(
        self,
        producer: int,
        sequence: int,
        cut: RowSlice,
        nbytes: int,
        done: Callable[[AppendHandle], object] | None,
    ) -> bool:
        """Let a producer's next rows travel with its last ones, if these are the last in the queue.

        They become one frame, which is in the log or not as a whole, and have one ticket. False if something
        stands in the way; then the rows have to queue.
        """
        if not self.queue or not self._plain:
            return False
        item = self.queue[-1]
        frame, ticket = item.frame, item.ticket
        if (
            item.producer != producer
            or frame is None
            or not isinstance(frame.columns, list)
            or frame.sequence + 1 != sequence
            or frame.size + cut.size > _LARGEST_RUN
            or not ticket.tells(done)
        ):
            return False
        frame.columns.append(cut)
        item.frame = NewFrame(frame.columns, frame.size + cut.size, producer, sequence, frame.arrival)
        item.nbytes += nbytes
        item.cost += self.cost(cut.size, nbytes) + 8 * cut.size
        ticket.sequence = self.offered[producer] = sequence
        self.waiting[producer] += nbytes
        return True

    def taken(self, item: PendingAppend) -> None:
        """Count an item that left the queue."""
        left = self.waiting.get(item.producer, 0) - item.nbytes
        if left > 0:
            self.waiting[item.producer] = left
        else:
            self.waiting.pop(item.producer, None)
        # A producer with nothing in the queue goes on from what is in the log.
        if self.offered.get(item.producer) == item.ticket.sequence:
            del self.offered[item.producer]

    def drop_queue(self, problem: ServiceError) -> list[Told]:
        """Empty the queue; return what its tickets are told."""
        told: list[Told] = [(item, problem) for item in self.queue]
        self.queue.clear()
        self.waiting.clear()
        self.offered.clear()
        return told

    def write(
        self, items: Sequence[PendingAppend], arrival: int, monotonic: int
    ) -> tuple[list[Told], ServiceError | None]:
        """Append items in order, frames that follow each other together.

        Returns what was written and, if the rest failed, why; the log is open again then, or has a failure.
        """
        told: list[Told] = []
        start = 0
        try:
            while start < len(items):
                start = self._write_next(items, start, arrival, monotonic, told)
        except (OSError, LogError) as error:
            problem = storage_problem(f"stream '{self.spec.name}'", error)
            _LOG.error("append failed", extra={"stream": self.spec.name, "reason": str(error)})
            self.reopen()
            return told, problem
        return told, None

    def reopen(self) -> None:
        """Open the log again after a write failed, which closed it: what had been appended is all there."""
        self.writer = None
        opened = self.opened
        self.open(opened)

    def mark(self, kind: FrameKind, arrival: int, producer: int = NOBODY) -> bool:
        """Append a mark ahead of what waits; False if it could not be written. A later one will do."""
        assert self.writer is not None
        try:
            self.writer.mark(kind, arrival, producer=producer)
        except (OSError, LogError) as error:
            _LOG.warning("mark not written", extra={"stream": self.spec.name, "reason": str(error)})
            self.reopen()
            return False
        return True

    def _write_next(
        self, items: Sequence[PendingAppend], start: int, arrival: int, monotonic: int, told: list[Told]
    ) -> int:
        item, writer = items[start], self.writer
        assert writer is not None
        if item.mark is not None:
            position = writer.mark(item.mark, arrival, producer=item.producer)
            self.alive.pop(item.producer, None)
            if item.mark is FrameKind.JOIN:
                self.alive[item.producer] = monotonic
            told.append((item, Accepted(0, position, 0)))
            return start + 1
        if item.frame is None:
            sequence = item.ticket.sequence
            told.append((item, Repeated(sequence, self.last[item.producer])))
            return start + 1
        frames, stop = self._run_of(items, start)
        position = writer.append_many(frames, arrival)
        nobody = self._count(items[start:stop], position, monotonic, told)
        if nobody and self.spec.event_time is not None:
            # Who has no name cannot say that it ended: it must not hold the watermark back.
            writer.mark(FrameKind.IDLE, arrival, producer=NOBODY)
        return stop

    def _run_of(self, items: Sequence[PendingAppend], start: int) -> tuple[list[NewFrame], int]:
        """Return frames that are appended together, and where they end; a part of a segment at most."""
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

    def _count(self, items: Sequence[PendingAppend], position: int, monotonic: int, told: list[Told]) -> bool:
        nobody, events, synced = False, self.spec.event_time is not None, self.options.sync is Sync.GROUP
        for item in items:
            frame, producer = item.frame, item.producer
            assert frame is not None
            if producer:
                self.last[producer] = frame.sequence
                self.unkept.add(producer)
                if synced:
                    self.unsynced.setdefault(producer, item.ticket.first)
                if events:
                    self.alive.pop(producer, None)
                    self.alive[producer] = monotonic
            else:
                nobody = True
            told.append((item, Accepted(frame.sequence, position, frame.size)))
            position += frame.size
            self.rows += frame.size
            self.frames += item.ticket.sequence - item.ticket.first + 1
        return nobody


@lru_cache(maxsize=1024)
def _shared(schema: Schema) -> Schema:
    """Return one object for equal schemas: a bundle asks of each frame whether its stream has the same."""
    return schema


def has_rows(path: Path) -> bool:
    """Return whether there is something in a directory that could be missed."""
    try:
        return bool(list_segments(path)) and LogReader(path).end > 0
    except LogError:
        return True
