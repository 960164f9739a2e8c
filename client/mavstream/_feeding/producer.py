"""Feeding: frames that are numbered, kept until they are acked, and sent again after a lost connection."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pydantic import BaseModel

from mavstream._convert.tuples import Tuples, canonical, portions
from mavstream._errors import ConnectionLost, Rejected, Timeout, problem_error
from mavstream._feeding.lane import HEADER_ROOM, Lane
from mavstream._transport.retry import Retry, open_again
from mavstream._transport.steps import Open, Pause, Send, Shut, Talk, receive
from mavstream_protocol import Problem, Schema
from mavstream_protocol.wire.envelope import seal
from mavstream_protocol.wire.feed import Ack, DataHeader, End, Ended, Hello, Reject, Welcome, to_producer

_LARGEST = 4 << 20
"""Bytes of a frame at most, so that the server can take one while the next is under way."""
_SMALLEST = 64 << 10
"""Frames are not cut smaller than this, however small the credit of the moment is."""

_PASSING = frozenset({429, 503})
"""Statuses of rejections that say "not now": the same frame is sent again."""
_GONE = 404
"""The status of rejections because there is no such stream any more."""

OnReject: TypeAlias = Callable[[Rejected], None]


class Producer:
    """A named producer of rows; every method is a conversation that survives lost connections.

    No frame is lost, because it is kept until its ack; none is doubled, because after a lost connection the
    server says which number it has last, and ignores a number that it has.
    """

    def __init__(
        self,
        name: str,
        schema_of: Callable[[str], Talk[Schema]],
        on_reject: OnReject | None,
        timeout: float,
        retry: Retry,
    ) -> None:
        self.name = name
        self.lanes: dict[str, Lane] = {}
        self._schema_of = schema_of
        self._on_reject = on_reject
        self._timeout = timeout
        self._retry = retry
        self._open = False
        self._most = _LARGEST
        self._rejected: deque[Rejected] = deque()
        # Refusals since the last ack that will pass by themselves, and whether one came just now.
        self._setbacks = 0
        self._held = False

    def start(self, streams: Sequence[str]) -> Talk[None]:
        """Connect, and learn how far the rows of earlier connections came."""
        for stream in streams:
            if stream not in self.lanes:
                self.lanes[stream] = Lane(stream, (yield from self._schema_of(stream)))
        try:
            yield from self._connect()
        except ConnectionLost as lost:
            yield from self._again(lost)

    def send(self, stream: str, tuples: Tuples) -> Talk[int]:
        """Send rows, waiting for credit; returns how many. Raises InvalidTuples, Rejected, Timeout."""
        self._tell()
        # The server tells a stream's last number and credit only in its welcome.
        if not self._open or stream not in self.lanes:
            yield from self.start([stream])
        lane = self.lanes.get(stream)
        if lane is None:
            raise problem_error(_gone(stream))
        batch = canonical(lane.schema, tuples)
        lane.frames.extend(portions(batch, self._most))
        yield from self._until(lambda: not lane.waiting, f"gave no credit for stream '{stream}'")
        while (yield from self._listen(0)):
            pass
        return int(batch.num_rows)

    def flush(self) -> Talk[None]:
        """Wait until every row is acked. Raises Rejected, Timeout."""
        if any(lane.busy for lane in self.lanes.values()):
            if not self._open:
                yield from self.start(())
            yield from self._until(
                lambda: not any(lane.busy for lane in self.lanes.values()), "did not ack all rows"
            )
        self._tell()

    def end(self, stream: str) -> Talk[None]:
        """Say that no more rows of a stream will come; returns when that is in the log, behind them."""
        if not self._open or stream not in self.lanes:
            yield from self.start([stream])
        if stream not in self.lanes:
            raise problem_error(_gone(stream))
        self.lanes[stream].ending = True
        yield from self.flush()

    def shut(self) -> Talk[None]:
        """Close the connection; rows without an ack are kept."""
        self._open = False
        yield Shut()

    def _until(self, done: Callable[[], bool], otherwise: str) -> Talk[None]:
        held = 0.0
        while True:
            if self._held:
                self._held = False
                pause = self._retry.pause(self._setbacks, random.random())
                held += pause
                if held > self._timeout:
                    raise Timeout(f"the server took no rows for {self._timeout:g} s; they are still queued")
                yield Pause(pause)
            yield from self._pump()
            if done():
                return
            if not (yield from self._listen(self._timeout)):
                raise Timeout(f"the server {otherwise} within {self._timeout:g} s; the rows are still queued")

    def _pump(self) -> Talk[None]:
        """Send what the credit allows."""
        while True:
            try:
                for lane in self.lanes.values():
                    yield from self._pump_lane(lane)
            except ConnectionLost as lost:
                yield from self._again(lost)
            else:
                return

    def _pump_lane(self, lane: Lane) -> Talk[None]:
        while (due := lane.due()) is not None:
            sequence, payload = due
            header = DataHeader(stream=lane.stream, sequence=sequence)
            yield Send(seal(header.model_dump_json().encode(), payload))
        if lane.end_due():
            yield Send(_text(End(stream=lane.stream)))

    def _listen(self, timeout: float) -> Talk[bool]:
        """Take in a message, or connect again; False if nothing came."""
        try:
            message = yield from receive(timeout)
            if message is None:
                return False
            self._heard(message)
        except ConnectionLost as lost:
            yield from self._again(lost)
        return True

    def _heard(self, message: str | bytes) -> None:
        match to_producer.validate_json(message):
            case Ack(stream=stream, sequence=sequence, credit=credit):
                if stream in self.lanes:
                    self.lanes[stream].ack(sequence, credit)
                self._setbacks = 0
            case Reject() as reject:
                self._take_back(reject)
            case Ended(stream=stream):
                if stream in self.lanes:
                    self.lanes[stream].ending = False
            case Welcome():
                raise ConnectionLost("the server said 'welcome' twice")

    def _take_back(self, reject: Reject) -> None:
        lane = self.lanes.get(reject.stream)
        if lane is None:
            return
        if reject.problem.status == _GONE:
            del self.lanes[reject.stream]
            self._refused(Rejected(reject.stream, lane.give_up(), reject.problem))
        elif reject.sequence == 0:
            lane.ending = False
            self._refused(Rejected(reject.stream, 0, reject.problem))
        else:
            passing = reject.problem.status in _PASSING
            frame = lane.reject(reject.sequence, reject.expected, keep=passing)
            if frame is not None and passing:
                self._setbacks += 1
                self._held = True
            elif frame is not None:
                self._refused(Rejected(reject.stream, frame.rows, reject.problem))

    def _refused(self, rejected: Rejected) -> None:
        if self._on_reject is None:
            self._rejected.append(rejected)
        else:
            self._on_reject(rejected)

    def _tell(self) -> None:
        if self._rejected:
            raise self._rejected.popleft()

    def _again(self, lost: ConnectionLost) -> Talk[None]:
        self._open = False
        yield from open_again(self._connect, lost, self._retry)

    def _connect(self) -> Talk[None]:
        self._open = False
        yield Open("/v1/feed", buffered=True)
        yield Send(_text(Hello(producer=self.name, streams=tuple(self.lanes))))
        message = yield from receive(self._timeout)
        if message is None:
            raise Timeout(f"the server did not welcome producer '{self.name}' within {self._timeout:g} s")
        welcome = to_producer.validate_json(message)
        if not isinstance(welcome, Welcome):
            raise ConnectionLost(f"expected 'welcome', came '{welcome.type}'")
        for stream in tuple(self.lanes):
            if stream in welcome.streams:
                stand = welcome.streams[stream]
                self.lanes[stream].welcome(self.name, stand.last_sequence, stand.credit)
            else:
                rows = self.lanes.pop(stream).give_up()
                self._refused(Rejected(stream, rows, _gone(stream)))
        credit = min((each.credit for each in welcome.streams.values()), default=_LARGEST)
        self._most = min(welcome.max_frame_bytes, _LARGEST, max(_SMALLEST, credit)) - HEADER_ROOM
        self._open = True


def _text(message: BaseModel) -> str:
    return message.model_dump_json()


def _gone(stream: str) -> Problem:
    detail = f"stream '{stream}' is not there any more; its rows without an ack were dropped"
    return Problem(title="There is no such stream", status=_GONE, code="unknown_stream", detail=detail)
