"""The one writer of a log: appends frames, rolls segments, and stops where a second writer would start."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from mavstream_server.columns.batch import END_OF_TIME
from mavstream_server.columns.column import Column, Ints
from mavstream_server.log.errors import LogClosedError, LogCompleteError, UnfitRowsError
from mavstream_server.log.format.coding import SegmentCoder
from mavstream_server.log.format.description import LogDescription, agree_description
from mavstream_server.log.format.encoding import NewFrame, check_rows, encode_body, seal_frame
from mavstream_server.log.format.layout import EMPTY_BODY, FRAME_BYTES, Body, FrameKind, Layout
from mavstream_server.log.format.segment import (
    HEADER_BYTES,
    SegmentFile,
    SegmentInfo,
    list_segments,
    read_info,
)
from mavstream_server.log.format.shared_columns import arrivals_differ, arrivals_of_slices, largest_of_slices
from mavstream_server.log.lock import lock_log
from mavstream_server.log.options import LogOptions, Sync
from mavstream_server.log.recovery import drop_unborn, recover
from mavstream_server.log.state import LogState

_FEW = 16  # rows


class LogWriter:
    """Appends to the log in a directory, creating it when a description is given and there is none.

    What an append returned for is seen by every reader and survives the death of this process. Arrival
    times are given by the caller and raised to the last one where they would go back. Not thread-safe.
    """

    def __init__(
        self, path: Path, description: LogDescription | None = None, options: LogOptions | None = None
    ) -> None:
        self.path = path
        self.options = options or LogOptions()
        self.cut_bytes = 0
        """Bytes dropped at opening because a death left them half written."""
        self.dropped: list[Path] = []
        """Files removed at opening because they never became segments."""
        self._segments: list[SegmentInfo] = []
        self._tail: SegmentFile | None = None
        self._dirty = False
        self._lock = lock_log(path, create=description is not None)
        try:
            self.description = agree_description(path, description)
            self._layout = Layout(self.description)
            self._state = LogState(self.description)
            self._coder = SegmentCoder(self._layout)
            self._open()
        except BaseException:
            self._abandon()
            raise

    def _open(self) -> None:
        self.dropped = drop_unborn(self.path)
        found = recover(self.path, self._layout, self._state, self._coder)
        self._segments = [read_info(name.within(self.path)) for name in list_segments(self.path)]
        if found is None:
            self._start_segment(serial=1, offset=0, room=0)
            return
        # A death between making a segment and sealing the one before it is made good here.
        for info in self._segments[-2:-1]:
            _seal(self.path, info)
        self._tail = tail = SegmentFile(self.path, found.name)
        self.cut_bytes = found.cut_bytes
        if tail.sealed:
            self._roll(0)
        elif found.cut_bytes or tail.capacity < self.options.segment_bytes:
            tail.cut(found.length, self._state.position, self.options.segment_bytes)
        else:
            tail.commit(found.length, self._state.position)

    @property
    def end(self) -> int:
        """The position of the next row."""
        return self._state.position

    @property
    def begin(self) -> int:
        """The position of the first row that is still there."""
        return self._segments[0].position

    @property
    def last_arrival(self) -> int:
        """The arrival time of the last frame, in ns; 0 if there is none."""
        return self._state.arrival

    @property
    def watermark(self) -> int:
        """The watermark behind the last frame, in us."""
        return self._state.watermarks.value

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
        """Whether more is on disk than the quota allows: time to slow the producers."""
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
    ) -> int:
        """Append rows as one frame and return the position of the first."""
        return self.append_many((NewFrame(columns, size, producer, sequence),), arrival_ns)

    def append_many(self, frames: Sequence[NewFrame], arrival_ns: int) -> int:
        """Append frames in one write; readers see all of them or none. Return the first position.

        `arrival_ns` is for the frames that do not carry their own.
        """
        self._open_tail()
        if self.watermark == END_OF_TIME:
            raise LogCompleteError(
                self.path, "the log was completed, and queries have ended with it; start a new log"
            )
        for frame in frames:
            check_rows(self.path, self._layout, frame)
        state = self._state
        first = state.position
        bodies = self._place(frames)
        event_time = self.description.event_time
        parts: list[bytes] = []
        for frame, body in zip(frames, bodies, strict=True):
            columns, size, producer, sequence, came = frame
            position, arrival, stamps = state.position, max(came or arrival_ns, state.arrival), b""
            largest = 0
            if event_time is not None and size:
                largest = (
                    largest_of_slices(columns, event_time)
                    if isinstance(columns, list)
                    else _largest(columns[event_time].values)
                )
            if isinstance(columns, list) and arrivals_differ(columns):
                told = arrivals_of_slices(columns, state.arrival)
                arrival, stamps = told[-1], array("q", told).tobytes()
            stamp = state.rows(producer, sequence, size, arrival, largest)
            header = seal_frame(
                body, FrameKind.DATA, stamp, position, arrival, size, producer, sequence, stamps
            )
            parts += (header, body.data, stamps)
        self._write(b"".join(parts))
        return first

    def mark(
        self, kind: FrameKind, arrival_ns: int, *, producer: int = 0, watermark: int | None = None
    ) -> int:
        """Append a mark, `watermark` with WATERMARK only; return the position that it stands ahead of."""
        if kind in (FrameKind.DATA, FrameKind.SNAPSHOT) or (kind is FrameKind.WATERMARK) != (
            watermark is not None
        ):
            raise UnfitRowsError(
                self.path, f"{kind.name} with watermark {watermark} is not a mark; see FrameKind"
            )
        if self._open_tail().length + EMPTY_BODY.length > self._open_tail().capacity:
            self._roll(EMPTY_BODY.length)
        arrival = max(arrival_ns, self._state.arrival)
        stamp = self._state.mark(kind, producer, arrival, watermark or 0)
        position = self._state.position
        self._write(
            seal_frame(EMPTY_BODY, kind, stamp, position=position, arrival=arrival, producer=producer)
        )
        return position

    def flush(self) -> None:
        """Return when all that was appended has reached the disk, unless `sync` is NEVER."""
        if self._dirty and self.options.sync is not Sync.NEVER:
            self._open_tail().sync()
            self._dirty = False

    def remove_before(self, serial: int) -> None:
        """Remove the segments ahead of the one with this number, oldest first; never the last one."""
        while len(self._segments) > 1 and self._segments[0].serial < serial:
            self._segments[0].name.within(self.path).unlink(missing_ok=True)
            del self._segments[0]

    def close(self) -> None:
        """Flush and let another writer in; closing again does nothing."""
        if self._tail is not None:
            self.flush()
        self._abandon()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _place(self, frames: Sequence[NewFrame]) -> list[Body]:
        """Lay out the frames for the segment that they go to, which is a new one if they do not fit."""
        tail, options, coder = self._open_tail(), self.options, self._coder
        if coder.texts > options.segment_texts or coder.text_size > options.segment_text_bytes:
            self._roll(0)
            tail = self._open_tail()
        bodies = self._encode(frames)
        stamps = 8 * sum([frame.size for frame in frames if frame.stamped])
        length = FRAME_BYTES * len(bodies) + sum([len(body.data) for body in bodies]) + stamps
        if tail.length + length > tail.capacity:
            self._roll(length)
            bodies = self._encode(frames)
            room = sum(body.length for body in bodies) + stamps
            # All texts of the frames are new to the new segment, which can make them larger than before.
            if room > length and self._open_tail().length + room > self._open_tail().capacity:
                self._open_tail().cut(self._open_tail().length, self.end, self._open_tail().length + room)
        return bodies

    def _encode(self, frames: Sequence[NewFrame]) -> list[Body]:
        known = self._coder.checkpoint()
        try:
            return [encode_body(self._layout, frame, self._coder) for frame in frames]
        except BaseException as error:
            # None of these frames will be written: the next one must carry their texts.
            self._coder.undo(known)
            if isinstance(error, IndexError):
                raise UnfitRowsError(self.path, "a string column has codes beyond its dictionary") from error
            raise

    def _write(self, data: bytes) -> None:
        try:
            self._open_tail().write(data, self._state.position)
            self._dirty = True
            if self.options.sync is Sync.EACH:
                self.flush()
        except BaseException:
            # State has run ahead of the file; opening the log again finds out what is there.
            self._abandon()
            raise

    def _roll(self, room: int) -> None:
        old = self._open_tail()
        try:
            if self.options.sync is not Sync.NEVER:
                old.sync()
            self._state.forget(self.begin)
            self._coder.restart()
            self._start_segment(old.info.serial + 1, old.info.offset + old.length, room)
            # Readers go on from a sealed segment to the next, so that must be there first.
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
                self.path, "this writer is closed, or an earlier write failed; open the log again to go on"
            )
        return self._tail

    def _abandon(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _largest(times: Ints) -> int:
    # Of few values Python finds it in a third of the time.
    return max(times.tolist()) if len(times) <= _FEW else int(np.maximum.reduce(times))


def _seal(path: Path, info: SegmentInfo) -> None:
    segment = SegmentFile(path, info.name)
    if not segment.sealed:
        segment.seal()
    segment.close()
