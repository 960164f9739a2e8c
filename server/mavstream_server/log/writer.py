"""The writer of a log: appends frames, rolls segments, and locks out other writers."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from mavstream_protocol.schema import Field, Schema
from mavstream_server.columns.batch import END_OF_TIME
from mavstream_server.columns.column import Column
from mavstream_server.core.storage.damage import Damage
from mavstream_server.log.errors import (
    LogClosedError,
    LogCompleteError,
    UnfitRowsError,
)
from mavstream_server.log.format.description import (
    LogDescription,
    ensure_description,
    load_description,
    save_description,
)
from mavstream_server.log.format.encoding import (
    NewFrame,
    check_rows,
    seal_frame,
)
from mavstream_server.log.format.layout import EMPTY_BODY, FRAME_BYTES, Body, FrameKind
from mavstream_server.log.format.layouts import Layouts
from mavstream_server.log.format.segment import (
    HEADER_BYTES,
    SegmentFile,
    SegmentInfo,
    list_segments,
)
from mavstream_server.log.format.segment_encoder import SegmentEncoder
from mavstream_server.log.format.shared_columns import (
    arrivals_differ,
    arrivals_of_slices,
    largest,
    largest_of_slices,
)
from mavstream_server.log.headers import header_damage
from mavstream_server.log.lock import lock_log
from mavstream_server.log.options import LogOptions, Sync
from mavstream_server.log.recovery import (
    Recovered,
    missing_segments,
    recover,
    remove_incomplete,
    settle_headers,
)
from mavstream_server.log.state import LogState


class LogWriter:
    """Appends to the log in a directory, creating the log if there is none and a description is given.

    Once an append has returned, every reader sees the rows, and they survive the death of this process. The
    caller gives arrival times; one that is below the last arrival time is raised to it. Not thread-safe.
    """

    def __init__(
        self, path: Path, description: LogDescription | None = None, options: LogOptions | None = None
    ) -> None:
        self.path = path
        self.options = options or LogOptions()
        self.cut_bytes = 0
        """Incompletely written bytes that were removed when the log was opened."""
        self.dropped: list[Path] = []
        """Incomplete segment files that were removed when the log was opened."""
        self.damage: list[Damage] = []
        """Damaged headers and frames, and missing files, that were found when the log was opened."""
        self._segments: list[SegmentInfo] = []
        self._tail: SegmentFile | None = None
        self._dirty = False
        self._lock = lock_log(path, create=description is not None)
        try:
            self.description = ensure_description(path, description)
            self._layouts = Layouts(self.description)
            self._state = LogState(self.description)
            self._open()
        except BaseException:
            self._abandon()
            raise

    def _open(self) -> None:
        self.dropped = remove_incomplete(self.path)
        names = list_segments(self.path)
        self._encoder = SegmentEncoder(self.path, self._layouts, names[-1].serial if names else 1)
        found = recover(self.path, self._layouts, self._state, self._encoder.coder)
        if found is None:
            self._start_segment(serial=1, offset=0, room=0)
        else:
            self._continue(found)
        while self._encoder.outdated:
            self._roll(0)  # the writer died between describing fields and beginning the segment with them

    def _continue(self, found: Recovered) -> None:
        """Go on in the last segment, or in a new one if that is not possible."""
        self._segments, damaged = settle_headers(self.path)
        self.cut_bytes = found.cut_bytes
        self.damage = [*damaged, *missing_segments(self.path), *found.damage]
        self._tail = tail = SegmentFile(self.path, self._segments[-1])
        if found.skipped:
            tail.truncate(found.length, self._state.position, found.length)
            tail.restore_header(self._state.position)
            self._roll(0)
        elif tail.sealed:
            self._roll(0)
        else:
            if found.cut_bytes or tail.capacity < self.options.segment_bytes:
                tail.truncate(found.length, self._state.position, self.options.segment_bytes)
            else:
                tail.commit(found.length, self._state.position)
            tail.restore_header(self._state.position)

    @property
    def end(self) -> int:
        """The position of the next row."""
        return self._state.position

    @property
    def deleted(self) -> bool:
        """Whether the file that is written to was deleted: what is appended would be lost."""
        return self._open_tail().deleted

    @property
    def begin(self) -> int:
        """The position of the first retained row."""
        return self._segments[0].position

    @property
    def last_arrival(self) -> int:
        """The arrival time of the last frame, in ns; 0 if there is none."""
        return self._state.arrival

    @property
    def watermark(self) -> int:
        """The watermark after the last frame, in us."""
        return self._state.watermarks.value

    @property
    def latest_time(self) -> int:
        """The largest time of all rows (us); BEGIN_OF_TIME without rows."""
        return self._state.watermarks.max_time

    @property
    def segments(self) -> Sequence[SegmentInfo]:
        """The segments on disk, oldest first; the last is being written."""
        return self._segments

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        tail = self._open_tail()
        return tail.info.offset + tail.length - self._segments[0].offset

    @property
    def over_quota(self) -> bool:
        """Whether the log takes more bytes on disk than its quota: producers should be throttled."""
        return self.options.quota is not None and self.nbytes > self.options.quota

    def last_sequence(self, producer: int) -> int:
        """Return the last sequence of a producer in the retained log, 0 if there is none."""
        return self._state.last_sequence(producer)

    def append(
        self,
        columns: Mapping[str, Column],
        size: int,
        arrival_ns: int,
        *,
        producer: int = 0,
        sequence: int = 0,
        provenance: bytes = b"",
        latest: int = 0,
    ) -> int:
        """Append rows as one frame and return the position of the first.

        `provenance` is that of results, see `encode_provenance`; with a mark in it there may be no rows.
        `latest` is their `latest_time`.
        """
        body: Body | None = EMPTY_BODY
        if size or not provenance:
            body = self._encode_plain(columns, size, len(provenance))
        else:
            self._make_room(EMPTY_BODY.length + len(provenance))
        if body is None:
            frame = NewFrame(columns, size, producer, sequence, provenance=provenance, latest=latest)
            return self.append_many((frame,), arrival_ns)
        state, event_time = self._state, self.description.event_time
        position, arrival = state.position, max(arrival_ns, state.arrival)
        if event_time is not None and size:
            latest = largest(columns[event_time].values)
        stamp = state.rows(producer, sequence, size, arrival, latest, traced=bool(provenance))
        header = seal_frame(
            body, FrameKind.DATA, stamp, position, arrival, size, producer, sequence, provenance=provenance
        )
        self._write(header + body.data + provenance)
        return position

    def _encode_plain(self, columns: Mapping[str, Column], size: int, behind: int) -> Body | None:
        """Encode a frame for the current segment; None if `append_many` has to roll, or to refuse it.

        `behind` is the number of bytes that follow the columns.
        """
        tail, encoder = self._tail, self._encoder
        if tail is None or self._state.watermarks.value == END_OF_TIME or encoder.full_of_texts(self.options):
            return None
        return encoder.plain(columns, size, tail.capacity - tail.length - behind)

    def append_many(self, frames: Sequence[NewFrame], arrival_ns: int) -> int:
        """Append frames in one write, of which readers see all or none; return the first position.

        `arrival_ns` is used for frames without an arrival time of their own.
        """
        self._open_tail()
        if self.watermark == END_OF_TIME:
            raise LogCompleteError(
                self.path, "the log was completed and takes no more rows; create a new log for them"
            )
        for frame in frames:
            check_rows(self.path, self._encoder.layout, frame)
        state = self._state
        first = state.position
        bodies = self._encode_to_fit(frames)
        event_time = self.description.event_time
        parts: list[bytes] = []
        for frame, body in zip(frames, bodies, strict=True):
            columns, size, producer, sequence, own_arrival, provenance, latest = frame
            position, arrival, stamps = state.position, max(own_arrival or arrival_ns, state.arrival), b""
            if event_time is not None and size:
                latest = (
                    largest_of_slices(columns, event_time)
                    if isinstance(columns, list)
                    else largest(columns[event_time].values)
                )
            if isinstance(columns, list) and arrivals_differ(columns):
                arrivals = arrivals_of_slices(columns, state.arrival)
                arrival, stamps = arrivals[-1], array("q", arrivals).tobytes()
            stamp = state.rows(producer, sequence, size, arrival, latest, traced=bool(provenance))
            header = seal_frame(
                body, FrameKind.DATA, stamp, position, arrival, size, producer, sequence, stamps, provenance
            )
            parts += (header, body.data, stamps, provenance)
        self._write(b"".join(parts))
        return first

    def mark(
        self, kind: FrameKind, arrival_ns: int, *, producer: int = 0, watermark: int | None = None
    ) -> int:
        """Append a mark and return the position of the next row; `watermark` (us) is for WATERMARK only."""
        if kind in (FrameKind.DATA, FrameKind.SNAPSHOT) or (kind is FrameKind.WATERMARK) != (
            watermark is not None
        ):
            raise UnfitRowsError(
                self.path,
                f"expected a mark, with a watermark only if it is WATERMARK; "
                f"got {kind.name} with watermark {watermark}",
            )
        self._make_room(EMPTY_BODY.length)
        arrival = max(arrival_ns, self._state.arrival)
        stamp = self._state.mark(kind, producer, arrival, watermark or 0)
        position = self._state.position
        self._write(
            seal_frame(EMPTY_BODY, kind, stamp, position=position, arrival=arrival, producer=producer)
        )
        return position

    def add_fields(self, added: Sequence[Field]) -> None:
        """Add nullable fields, which are null in all rows so far; a new segment begins with them.

        Raises LogMismatchError. If the files cannot be written, the writer is closed: opened again, the log
        has all of the fields or none.
        """
        tail = self._open_tail()
        description = self.description.with_fields(added, tail.info.serial + 1)
        description.check(self.path)
        try:
            save_description(self.path, description)
        except BaseException:
            self._abandon()
            raise
        self.description = description
        self._layouts.update(description)
        self._roll(0)

    def change_schema(self, schema: Schema) -> None:
        """Append rows of another schema from here on, in a new segment; does nothing if it is the same.

        Raises LogMismatchError. If the description cannot be written, the log stays as it is.
        """
        tail = self._open_tail()
        if schema == self.description.schema:
            return
        description = self.description.with_schema(schema, tail.info.serial + 1, self._segments[0].serial)
        description.check(self.path)
        try:
            save_description(self.path, description)
        except BaseException:
            if load_description(self.path) != self.description:
                self._abandon()
            raise
        self.description = description
        self._layouts.update(description)
        self._roll(0)

    def _make_room(self, length: int) -> None:
        """Start a new segment unless a frame of this length fits into the current one."""
        if self._open_tail().length + length > self._open_tail().capacity:
            self._roll(length)

    def restore_header(self) -> Damage | None:
        """Write the header of the last segment again if somebody else has changed it; return the damage."""
        tail = self._open_tail()
        if not tail.restore_header(self.end):
            return None
        return header_damage(tail.file, tail.info.name, "the header was changed; it was written again")

    def flush(self) -> None:
        """Sync everything that was appended to disk, unless `sync` is NEVER."""
        if self._dirty and self.options.sync is not Sync.NEVER:
            self._open_tail().sync()
            self._dirty = False

    def remove_before(self, serial: int) -> None:
        """Remove the segments before the one with this serial number, oldest first; never the last one."""
        while len(self._segments) > 1 and self._segments[0].serial < serial:
            self._segments[0].name.within(self.path).unlink(missing_ok=True)
            del self._segments[0]

    def close(self) -> None:
        """Flush and release the lock; closing again does nothing."""
        if self._tail is not None:
            self.flush()
        self._abandon()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _encode_to_fit(self, frames: Sequence[NewFrame]) -> list[Body]:
        """Encode frames for the current segment, or for a new one if they do not fit."""
        tail = self._open_tail()
        if self._encoder.full_of_texts(self.options):
            self._roll(0)
            tail = self._open_tail()
        bodies = self._encoder.bodies(frames)
        behind = sum([8 * frame.size if frame.stamped else len(frame.provenance) for frame in frames])
        length = FRAME_BYTES * len(bodies) + sum([len(body.data) for body in bodies]) + behind
        if tail.length + length > tail.capacity:
            self._roll(length)
            bodies = self._encoder.bodies(frames)
            room = sum(body.length for body in bodies) + behind
            # All texts are new to the new segment, which can make the frames larger than before.
            if room > length and self._open_tail().length + room > self._open_tail().capacity:
                self._open_tail().truncate(
                    self._open_tail().length, self.end, self._open_tail().length + room
                )
        return bodies

    def _write(self, data: bytes) -> None:
        try:
            self._open_tail().write(data, self._state.position)
            self._dirty = True
            if self.options.sync is Sync.EACH:
                self.flush()
        except BaseException:
            # The state is ahead of the file now; opening the log again recovers the state from the file.
            self._abandon()
            raise

    def _roll(self, room: int) -> None:
        old = self._open_tail()
        try:
            if self.options.sync is not Sync.NEVER:
                old.sync()
            self._state.forget(self.begin)
            self._encoder.begin(old.info.serial + 1)
            self._start_segment(old.info.serial + 1, old.info.offset + old.length, room)
            # Readers continue from a sealed segment to the next one, which therefore must exist first.
            try:
                old.seal()
            finally:
                old.close()
        except BaseException:
            self._abandon()
            raise

    def _start_segment(self, serial: int, offset: int, room: int) -> None:
        state, options = self._state, self.options
        snapshot = state.snapshot()
        info = SegmentInfo(serial, state.position, state.arrival, offset)
        capacity = max(options.segment_bytes, HEADER_BYTES + len(snapshot) + room)
        self._tail = SegmentFile.create(
            self.path, info, snapshot, capacity, sync=options.sync is not Sync.NEVER
        )
        if not self._segments or self._segments[-1].serial != serial:
            self._segments.append(info)

    def _open_tail(self) -> SegmentFile:
        if self._tail is None:
            raise LogClosedError(
                self.path,
                "this writer is closed, or an earlier write failed; open the log again to continue",
            )
        return self._tail

    def _abandon(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
