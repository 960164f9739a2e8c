"""The outbox: frames that are made, and the messages of the next write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mavstream_feeder.pacing.arrivals import Times
from mavstream_feeder.pacing.lags import Lags
from mavstream_feeder.sending.bundles import MOST_ROWS, Piece, bundle
from mavstream_feeder.sending.frames import make_frame
from mavstream_feeder.sending.lane import Lane
from mavstream_feeder.sending.link import Link
from mavstream_protocol.wire.feed import Format


class Outbox:
    """What leaves with the next write, each lane's frames in the order of their numbers."""

    def __init__(self, link: Link, form: Format, lags: Lags) -> None:
        self.frames = 0
        """Frames that were made or sent again."""
        self._link = link
        self._format = form
        self._lags = lags
        self.messages: list[bytes | str] = []
        """What the next write sends."""
        # Small frames that are to be made, by kind of their rows: the next write carries them together.
        self._small: dict[int, list[tuple[Piece, pa.RecordBatch]]] = {}

    @property
    def bundles(self) -> bool:
        """Whether frames of several streams may travel in one message."""
        return self._link.bundles

    def clear(self) -> None:
        """Forget messages that were not written: lanes send their frames again on the next connection."""
        self.messages.clear()

    def bundle(
        self, rows: pa.RecordBatch, pieces: Sequence[Piece], streams: NDArray[np.intp], due: Times
    ) -> bool:
        """Make the frames of rows that travel together; False, and nothing is done, if they may not."""
        message = bundle(rows, pieces, self._link.max_frame_bytes)
        if message is None:
            return False
        self._lags.leaving(streams, due)
        self.frames += len(pieces)
        self.messages.append(message)
        return True

    def add(self, lane: Lane, rows: pa.RecordBatch, place: int, kind: int) -> None:
        """Make a frame, or let it wait for others of its kind until `close`."""
        if self._link.bundles and rows.num_rows <= MOST_ROWS and not lane.waiting:
            self._small.setdefault(kind, []).append(((lane, rows.num_rows, place), rows))
        else:
            self._make(lane, rows, place)

    def close(self) -> None:
        """Make the frames that wait for others: together, if there are several and they may."""
        for small in self._small.values():
            message = None
            if len(small) > 1:
                rows = pa.concat_batches([rows for _, rows in small])
                message = bundle(rows, [piece for piece, _ in small], self._link.max_frame_bytes)
            if message is not None:
                self.frames += len(small)
                self.messages.append(message)
                continue
            for (lane, _, place), rows in small:
                self._make(lane, rows, place)
        self._small.clear()

    def resend(self, lanes: Iterable[Lane]) -> None:
        """Send what waits, as far as credit goes."""
        for lane in lanes:
            if lane.waiting:
                self._push(lane)

    async def write(self, now: Callable[[], float]) -> None:
        """Send all messages. Raises ConnectionClosed."""
        if not self.messages:
            return
        messages, self.messages = self.messages, []
        await self._link.send_all(messages)
        self._lags.sent(now())

    def _make(self, lane: Lane, rows: pa.RecordBatch, place: int) -> None:
        frame = make_frame(lane.stream, lane.next_sequence, rows, self._format, place)
        if frame.size > self._link.max_frame_bytes and rows.num_rows > 1:
            half = rows.num_rows // 2
            self._make(lane, rows.slice(0, half), place)
            self._make(lane, rows.slice(half), place)
            return
        lane.made(frame)
        self._push(lane)

    def _push(self, lane: Lane) -> None:
        while (frame := lane.next_frame()) is not None:
            self.frames += 1
            assert frame.message is not None
            self.messages.append(frame.message)
