"""The SDK's producer: sends rows within credit, keeps them until acknowledged, resends them after a
reconnect."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

from mavstream._convert.tuples import Tuples, canonical
from mavstream._errors import Conflict, ConnectionLost, Rejected, Timeout, problem_error
from mavstream._transport.retry import Retry, open_again
from mavstream._transport.steps import Close, Open, Pause, Send, Talk, receive
from mavstream_protocol import InvalidTuples, Problem, Schema
from mavstream_protocol.producer import (
    ProducerState,
    Refusal,
    RefusalKind,
    Resumed,
    SendWindow,
    UnexpectedMessage,
    make_frames,
)
from mavstream_protocol.wire.feed import Welcome

_MAX_FRAME_BYTES = 4 << 20
"""Frames are at most this long, so that the server can take one while the next is in flight."""
_MIN_FRAME_BYTES = 64 << 10
"""Frames are not cut shorter than this, however little credit there is."""

OnReject: TypeAlias = Callable[[Rejected], None]


class Producer:
    """A named producer of rows; every method is a conversation that survives lost connections.

    No frame is lost, because it is kept until it is acknowledged. None is duplicated, because after a
    reconnect the server says which sequence number it has last, and ignores a number that it has.
    """

    def __init__(
        self,
        name: str,
        schema_of: Callable[[str], Talk[Schema]],
        on_reject: OnReject | None,
        timeout: float,
        retry: Retry,
    ) -> None:
        self._state = ProducerState(name)
        self._schemas: dict[str, Schema] = {}
        self._schema_of = schema_of
        self._on_reject = on_reject
        self._timeout = timeout
        self._retry = retry
        self._open = False
        self._frame_bytes = _MAX_FRAME_BYTES
        self._rejected: deque[Rejected] = deque()
        # Transient refusals since the last acknowledgement, and whether to back off before the next frame.
        self._refusals = 0
        self._back_off = False

    def acked(self, stream: str) -> int:
        """Return the sequence number of the last acknowledged frame of a stream."""
        return self._windows[stream].acked

    def start(self, streams: Sequence[str]) -> Talk[None]:
        """Connect, and learn which frames of earlier connections the server has."""
        for stream in streams:
            if stream not in self._windows:
                self._schemas[stream] = yield from self._schema_of(stream)
                self._windows[stream] = SendWindow(stream)
        try:
            yield from self._connect()
        except ConnectionLost as lost:
            yield from self._reconnect(lost)

    def send(self, stream: str, tuples: Tuples) -> Talk[int]:
        """Send rows, waiting for credit; returns how many. Raises InvalidTuples, Rejected, Timeout."""
        self._raise_rejected()
        window = yield from self._window(stream)
        batch = yield from self._batch(stream, tuples)
        for frame in make_frames(stream, batch, self._frame_bytes):
            window.add(frame)
        yield from self._until(lambda: not window.waiting, f"gave no credit for stream '{stream}'")
        while (yield from self._listen(0)):
            pass
        return int(batch.num_rows)

    def flush(self) -> Talk[None]:
        """Wait until every row is acknowledged. Raises Rejected, Timeout."""
        if self._busy():
            if not self._open:
                yield from self.start(())
            yield from self._until(lambda: not self._busy(), "did not acknowledge all rows")
        self._raise_rejected()

    def end(self, stream: str) -> Talk[None]:
        """Say that no more rows of a stream will follow; returns when that is in the log, behind them."""
        window = yield from self._window(stream)
        window.end()
        yield from self.flush()

    def close(self) -> Talk[None]:
        """Close the connection; rows without an acknowledgement are kept."""
        self._open = False
        yield Close()

    @property
    def _windows(self) -> dict[str, SendWindow]:
        return self._state.windows

    def _window(self, stream: str) -> Talk[SendWindow]:
        # The server tells a stream's last sequence number and credit only in its welcome.
        if not self._open or stream not in self._windows:
            yield from self.start([stream])
        window = self._windows.get(stream)
        if window is None:
            raise problem_error(_gone(stream))
        return window

    def _batch(self, stream: str, tuples: Tuples) -> Talk[pa.RecordBatch]:
        """Return rows as a batch of the stream's schema."""
        schema = self._schemas[stream]
        # An iterator can be read only once, and the rows may be needed twice.
        held = tuples if hasattr(tuples, "__len__") else list(tuples)
        try:
            return canonical(schema, held)
        except InvalidTuples:
            # The stream may have got fields since it was looked up.
            self._schemas[stream] = yield from self._schema_of(stream)
            if self._schemas[stream] == schema:
                raise
            return canonical(self._schemas[stream], held)

    def _busy(self) -> bool:
        return any(window.busy for window in self._windows.values())

    def _until(self, done: Callable[[], bool], otherwise: str) -> Talk[None]:
        paused = 0.0
        while True:
            if self._back_off:
                self._back_off = False
                pause = self._retry.pause(self._refusals, random.random())
                paused += pause
                if paused > self._timeout:
                    raise Timeout(f"the server took no rows for {self._timeout:g} s; they are still queued")
                yield Pause(pause)
            yield from self._send_waiting()
            if done():
                return
            if not (yield from self._listen(self._timeout)):
                raise Timeout(f"the server {otherwise} within {self._timeout:g} s; the rows are still queued")

    def _send_waiting(self) -> Talk[None]:
        """Send what credit allows, on a new connection if this one is lost."""
        while True:
            try:
                for window in self._windows.values():
                    for message in self._state.outgoing(window):
                        yield Send(message)
            except ConnectionLost as lost:
                yield from self._reconnect(lost)
            else:
                return

    def _listen(self, timeout: float) -> Talk[bool]:
        """Take in a message, or reconnect; False if there was none within the timeout."""
        try:
            message = yield from receive(timeout)
            if message is None:
                return False
            self._take_in(message)
        except ConnectionLost as lost:
            yield from self._reconnect(lost)
        return True

    def _take_in(self, message: str | bytes) -> None:
        try:
            received = self._state.receive(message)
        except UnexpectedMessage as error:
            raise ConnectionLost(str(error)) from error
        if received.refusal is None:
            self._refusals = 0
        else:
            self._refused(received.refusal)

    def _refused(self, refusal: Refusal) -> None:
        window = refusal.window
        match refusal.kind:
            case RefusalKind.TRANSIENT:
                self._refusals += 1
                self._back_off = True
            case RefusalKind.PERMANENT:
                rows = window.rows_rejected
                window.replace_next(None)
                self._report(Rejected(window.stream, window.rows_rejected - rows, refusal.problem))
            case RefusalKind.END:
                self._report(Rejected(window.stream, 0, refusal.problem))
            case RefusalKind.STREAM_GONE:
                self._abandon(window, refusal.problem)

    def _abandon(self, window: SendWindow, problem: Problem) -> None:
        del self._windows[window.stream]
        self._report(Rejected(window.stream, window.abandon(), problem))

    def _report(self, rejected: Rejected) -> None:
        if self._on_reject is None:
            self._rejected.append(rejected)
        else:
            self._on_reject(rejected)

    def _raise_rejected(self) -> None:
        if self._rejected:
            raise self._rejected.popleft()

    def _reconnect(self, lost: ConnectionLost) -> Talk[None]:
        self._open = False
        yield from open_again(self._connect, lost, self._retry)

    def _connect(self) -> Talk[None]:
        self._open = False
        yield Open("/v1/feed", buffered=True)
        yield Send(self._state.hello())
        message = yield from receive(self._timeout)
        name = self._state.producer
        if message is None:
            raise Timeout(f"the server did not welcome producer '{name}' within {self._timeout:g} s")
        try:
            welcome = self._state.read_welcome(message)
        except UnexpectedMessage as error:
            raise ConnectionLost(str(error)) from error
        self._resume(welcome)
        self._open = True

    def _resume(self, welcome: Welcome) -> None:
        for window in tuple(self._windows.values()):
            known = welcome.streams.get(window.stream)
            if known is None:
                self._abandon(window, _gone(window.stream))
                continue
            match window.resume(known.last_sequence, known.credit):
                case Resumed.FRAMES_UNKNOWN:
                    raise _name_in_use(self._state.producer, window.stream)
                case Resumed.FRAMES_LOST:
                    # What the server has lost and acknowledged before is not here any more.
                    window.restart(known.last_sequence, known.credit)
        credit = min((each.credit for each in welcome.streams.values()), default=_MAX_FRAME_BYTES)
        self._frame_bytes = min(welcome.max_frame_bytes, _MAX_FRAME_BYTES, max(_MIN_FRAME_BYTES, credit))


def _gone(stream: str) -> Problem:
    detail = f"stream '{stream}' does not exist any more; its rows without an acknowledgement were dropped"
    return Problem(title="There is no such stream", status=404, code="unknown_stream", detail=detail)


def _name_in_use(producer: str, stream: str) -> Conflict:
    detail = (
        f"stream '{stream}' has rows of producer '{producer}' that another process sent: "
        "give each process a producer name of its own"
    )
    return Conflict(Problem(title="The producer is taken", status=409, code="taken", detail=detail))
