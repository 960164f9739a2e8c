"""The outbox: due rows become frames, and frames the messages of the next write. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mavstream_feeder.pacing.arrivals import Times
from mavstream_feeder.pacing.lags import Lags
from mavstream_protocol.producer import Part, ProducerState, SendWindow, make_frames, multi_stream_message

MAX_SHARED_ROWS = 256
"""Rows of a frame up to which it may share a message; a larger one gains nothing by it."""


class Outbox:
    """Messages for the next write; the frames of each stream are in the order of their sequence numbers."""

    def __init__(self, state: ProducerState, lags: Lags) -> None:
        self.messages: list[bytes | str] = []
        """What the next write sends."""
        self.multi_stream = False
        """Whether frames of several streams may share a message on this connection."""
        self._state = state
        self._lags = lags
        # Small frames that are to be made, by the schema of their rows: they share a message.
        self._small: dict[int, list[tuple[Part, pa.RecordBatch]]] = {}

    def take(self) -> list[bytes | str]:
        """Remove and return the messages."""
        messages, self.messages = self.messages, []
        return messages

    def add_group(
        self, rows: pa.RecordBatch, parts: Sequence[Part], streams: NDArray[np.intp], due: Times
    ) -> bool:
        """Add one message with the rows of several streams; False, and nothing is done, if it does not fit.

        `streams` are the numbers of the rows' streams among the lags, `due` their due times.
        """
        message = multi_stream_message(rows, parts, self._state.max_frame_bytes)
        if message is None:
            return False
        self._lags.leaving(streams, due)
        self.messages.append(message)
        return True

    def add(self, window: SendWindow, rows: pa.RecordBatch, source_row: int, schema: int) -> None:
        """Add the rows of a stream; small frames are kept until `flush`, to share a message."""
        if self.multi_stream and rows.num_rows <= MAX_SHARED_ROWS and not window.waiting:
            self._small.setdefault(schema, []).append(((window, rows.num_rows, source_row), rows))
        else:
            self._add_single(window, rows, source_row)

    def flush(self) -> None:
        """Make the frames that were kept; several of one schema share a message if they fit."""
        for small in self._small.values():
            message = None
            if len(small) > 1:
                rows = pa.concat_batches([rows for _, rows in small])
                parts = [part for part, _ in small]
                message = multi_stream_message(rows, parts, self._state.max_frame_bytes)
            if message is not None:
                self.messages.append(message)
                continue
            for (window, _, source_row), rows in small:
                self._add_single(window, rows, source_row)
        self._small.clear()

    def send_waiting(self, windows: Iterable[SendWindow]) -> None:
        """Add what waits in windows, as far as credit goes, and the ends that are due."""
        for window in windows:
            if window.waiting or window.ending:
                self.messages.extend(self._state.outgoing(window))

    def _add_single(self, window: SendWindow, rows: pa.RecordBatch, source_row: int) -> None:
        state = self._state
        for frame in make_frames(
            window.stream, rows, state.max_frame_bytes, state.form, source_row=source_row, keep_rows=True
        ):
            window.add(frame)
        self.messages.extend(state.outgoing(window))
