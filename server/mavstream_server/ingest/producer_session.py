"""One producer's connection without its socket: messages in, messages out.

    new --hello--> feeding --(taken over, malformed message, stop)--> closed

In `feeding` data and ends are taken; their acks and rejects come when the store has settled them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import ValidationError

from mavstream_protocol.errors import InvalidTuples, MavstreamError, ProblemItem
from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples import decode_columns, decode_message, decode_rows
from mavstream_protocol.wire.envelope import unseal
from mavstream_protocol.wire.feed import CloseCode, Ended, Hello, Reject, Welcome, share
from mavstream_server.columns.arrow import columns_from_arrow
from mavstream_server.columns.column import Column
from mavstream_server.core.errors import NotFound, SequenceGap, problem_of
from mavstream_server.ingest.messages import NotUnderstood, address, kind, parse
from mavstream_server.ingest.multi_stream import MessageRows, frames_of_message
from mavstream_server.ingest.stream_store import Accepted, AppendHandle, Repeated, StreamStore
from mavstream_server.ingest.traffic import Traffic
from mavstream_server.log.format.shared_columns import RowSlice

_LARGEST_HELLO = 256 << 10
_DATA_KEYS = frozenset({"type", "stream", "sequence", "rows", "columns"})
_HEADER_KEYS = frozenset({"stream", "sequence"})


class FeedState(StrEnum):
    """The life of a connection."""

    NEW = "new"
    FEEDING = "feeding"
    CLOSED = "closed"


_EXPECTED = {FeedState.NEW: "hello", FeedState.FEEDING: "data or end", FeedState.CLOSED: "nothing"}


class Close(NamedTuple):
    """The last thing to say."""

    code: int
    reason: str


class ProducerSession:
    """What a connection has said and is to be told. `woken` is called when there is something to send."""

    def __init__(
        self,
        streams: StreamStore,
        traffic: Traffic,
        delivery: Any,
        max_frame_bytes: int,
        woken: Callable[[], object],
        greeted: Callable[[ProducerSession], object],
    ) -> None:
        self.state = FeedState.NEW
        self.producer = ""
        self.bundles = False
        """Whether it sends bundles and hears its acks together."""
        self.closing: Close | None = None
        self._streams = streams
        self._traffic = traffic
        self._delivery = delivery
        self._max_frame_bytes = max_frame_bytes
        self._woken = woken
        self._greeted = greeted
        self._messages: list[str] = []
        self._acks: dict[str, int] = {}  # by stream, what is to be acked; later ones take their place
        # By stream, the last number that the store took and has not refused.
        self._offered: dict[str, int] = {}
        self._fed: set[str] = set()  # streams that it named or sent rows for: it waits for their credit
        self._received = 0  # when the message at hand came, in ns: the arrival of its rows

    # What comes in

    def received(self, message: str | bytes, came: int = 0) -> None:
        """Take a message in; what is wrong with it is said in messages or ends the connection.

        `came` is when that was, in ns, and 0 is now.
        """
        self._received = came or self._streams.now()
        try:
            if self.state is FeedState.FEEDING:
                if isinstance(message, str):
                    self._text(message)
                else:
                    self._binary(message)
            elif self.state is FeedState.NEW:
                self._hello(message)
        except NotUnderstood as error:
            self.close(CloseCode.NOT_UNDERSTOOD, str(error))

    def _hello(self, message: str | bytes) -> None:
        if not isinstance(message, str):
            raise self._illegal("a binary message")
        if len(message) > _LARGEST_HELLO:
            raise NotUnderstood(f"hello may have {_LARGEST_HELLO} characters: name fewer streams")
        parsed = parse(message)
        if parsed.get("type") != "hello":
            raise self._illegal(kind(parsed))
        try:
            hello = Hello.model_validate(parsed)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise NotUnderstood(f"hello: {'/'.join(map(str, first['loc']))}: {first['msg']}") from None
        self.producer, self.state = hello.producer, FeedState.FEEDING
        self.bundles = hello.bundles
        self._greeted(self)
        # Unknown streams are left out: they may be made before the first frame comes.
        named = (name for name in hello.streams if name in self._streams)
        known = {name: self._streams.standing(hello.producer, name) for name in named}
        self._fed.update(known)
        self._say(
            Welcome(
                producer=hello.producer,
                delivery=self._delivery,
                streams=known,
                max_frame_bytes=self._max_frame_bytes,
            ).model_dump_json()
        )

    def _text(self, message: str) -> None:
        parsed = parse(message)
        said = parsed.get("type")
        if said == "data":
            self._data(parsed, len(message))
        elif said == "end":
            self._end(parsed)
        else:
            raise self._illegal(kind(parsed))

    def _data(self, data: dict[str, Any], nbytes: int) -> None:
        stream, sequence = address(data.get("stream"), data.get("sequence"))
        try:
            if strange := data.keys() - _DATA_KEYS:
                raise _refused(
                    "unknown_key", f"{min(strange)!r} is not known in a data message: leave it out"
                )
            if ("rows" in data) == ("columns" in data):
                raise _refused("rows_or_columns", "a data message has exactly one of 'rows' and 'columns'")
            schema = self._schema(stream)
            if "rows" in data:
                batch = decode_rows(schema, data["rows"])
            else:
                batch = decode_columns(schema, data["columns"])
            self._offer(stream, sequence, columns_from_arrow(batch, schema), batch.num_rows, nbytes)
        except MavstreamError as error:
            self._reject(stream, sequence, error)

    def _binary(self, message: bytes) -> None:
        try:
            header, payload = unseal(message)
        except InvalidTuples as error:
            raise NotUnderstood(error.items[0].detail) from None
        parsed = parse(header)
        if "frames" in parsed:
            self._bundle(parsed, payload, len(message))
            return
        stream, sequence = address(parsed.get("stream"), parsed.get("sequence"))
        try:
            if parsed.keys() - _HEADER_KEYS:
                raise _refused("unknown_key", "the header of an Arrow frame has 'stream' and 'sequence' only")
            schema = self._schema(stream)
            batch = decode_message(schema, payload)
            columns = columns_from_arrow(batch, schema)
            self._offer(stream, sequence, columns, batch.num_rows, len(message))
        except MavstreamError as error:
            self._reject(stream, sequence, error)

    def _bundle(self, header: dict[str, Any], payload: memoryview, nbytes: int) -> None:
        if not self.bundles:
            raise NotUnderstood("a bundle came unannounced: say hello with 'bundles': true")
        frames = frames_of_message(header)
        total = sum([rows for _, _, rows in frames])
        first = next((stream for stream, _, _ in frames if stream in self._streams), None)
        rows: MessageRows | MavstreamError | None = None
        if first is not None:
            try:
                rows = MessageRows(first, self._schema(first), payload, total)
            except MavstreamError as error:
                rows = error
        pack = rows.pack if isinstance(rows, MessageRows) else None
        join, done, counts, offered = (
            self._streams.join_cut,
            self._settled,
            self._traffic.received,
            self._offered,
        )
        start = 0
        for stream, sequence, count in frames:
            size = share(nbytes, count, total)
            if pack is not None and join(
                self.producer, stream, sequence, RowSlice(pack, start, count, self._received), size, done
            ):
                counts[stream] += count
                offered[stream] = sequence
            else:
                self._offer_part(stream, sequence, rows, start, count, size)
            start += count

    def _offer_part(
        self,
        stream: str,
        sequence: int,
        rows: MessageRows | MavstreamError | None,
        start: int,
        count: int,
        nbytes: int,
    ) -> None:
        try:
            part = self._bundled(stream, rows, start, count)
            self._offer(stream, sequence, part, count, nbytes)
        except MavstreamError as error:
            self._reject(stream, sequence, error)

    def _bundled(
        self, stream: str, rows: MessageRows | MavstreamError | None, start: int, count: int
    ) -> Mapping[str, Column] | RowSlice:
        schema = self._schema(stream)
        if isinstance(rows, MavstreamError):
            raise rows
        assert rows is not None, "a stream of the bundle is known"
        return rows.part(stream, schema, start, count, self._received)

    def _offer(
        self, stream: str, sequence: int, rows: Mapping[str, Column] | RowSlice, count: int, nbytes: int
    ) -> None:
        self._traffic.received[stream] += count
        try:
            self._streams.offer_columns(
                self.producer,
                stream,
                sequence,
                [rows] if isinstance(rows, RowSlice) else rows,
                count,
                nbytes,
                arrival=self._received,
                gathers=isinstance(rows, RowSlice),
                done=self._settled,
            )
        except MavstreamError:
            self._traffic.rejected[stream] += count - 1
            raise
        self._fed.add(stream)
        if sequence > self._offered.get(stream, 0):
            self._offered[stream] = sequence

    def _schema(self, stream: str) -> Schema:
        shape = self._streams.shapes().get(stream)
        if shape is None:
            raise NotFound.stream(stream[:64], self._streams.names)
        return shape.schema

    def _end(self, end: dict[str, Any]) -> None:
        stream = end.get("stream")
        if not isinstance(stream, str) or end.keys() != {"type", "stream"}:
            raise NotUnderstood("end: expected exactly 'type' and 'stream', a name")
        try:
            self._streams.end(self.producer, stream, self._ended)
        except MavstreamError as error:
            self._reject(stream, 0, error)

    # What the store tells

    def _settled(self, ticket: AppendHandle) -> None:
        """A frame is in the log, was there before, or could not be written."""
        outcome, stream = ticket.outcome, ticket.stream
        if isinstance(outcome, Accepted):
            self._traffic.acked[stream] += outcome.rows
            self._ack(stream, outcome.sequence)
        elif isinstance(outcome, Repeated):
            self._traffic.repeated[stream] += 1
            self._ack(stream, outcome.last)
        elif ticket.error is not None:
            self._offered.pop(stream, None)
            for sequence in range(ticket.first, ticket.sequence + 1):
                self._reject(stream, sequence, ticket.error)

    def _ended(self, ticket: AppendHandle) -> None:
        if ticket.error is not None:
            self._reject(ticket.stream, 0, ticket.error)
            return
        self._say_acks((ticket.stream,))
        self._say(Ended(stream=ticket.stream).model_dump_json())

    def credit_returned(self, stream: str) -> None:
        """A stream that was held goes on: its last ack is said again, with credit."""
        if stream in self._fed:
            self._ack(stream, self._streams.last_sequence(self.producer, stream))

    # What goes out

    def take(self) -> list[str]:
        """Return what is to be sent now, in order; acks are made here, so that they carry the latest."""
        self._say_acks(tuple(self._acks))
        messages, self._messages = self._messages, []
        return messages

    @property
    def unsent(self) -> int:
        """Messages that wait to be taken."""
        return len(self._messages)

    def close(self, code: int, reason: str) -> None:
        """End the connection, after what was to be said."""
        if self.state is not FeedState.CLOSED:
            self.state = FeedState.CLOSED
            self.closing = Close(code, cut_reason(reason))
            self._woken()

    def _ack(self, stream: str, sequence: int) -> None:
        if sequence >= self._acks.get(stream, 0):
            self._acks[stream] = sequence
        self._woken()

    def _say_acks(self, streams: tuple[str, ...]) -> None:
        # By hand: this is said for every flush, and names need no escapes.
        together: list[str] = []
        for stream in streams:
            sequence = self._acks.pop(stream, None)
            if sequence is not None and stream in self._streams:
                credit = self._streams.credit(self.producer, stream)
                if self.bundles:
                    together.append(f'"{stream}":[{sequence},{credit}]')
                else:
                    self._messages.append(
                        f'{{"type":"ack","stream":"{stream}","sequence":{sequence},"credit":{credit}}}'
                    )
        if together:
            self._messages.append(f'{{"type":"acks","streams":{{{",".join(together)}}}}}')

    def _reject(self, stream: str, sequence: int, error: MavstreamError) -> None:
        self._traffic.rejected[stream if stream in self._streams else "unknown"] += 1
        self._say_acks((stream,))
        expected, problem = self._expected(stream, error), problem_of(error)
        reject = Reject(stream=stream[:64], sequence=sequence, expected=expected, problem=problem)
        self._say(reject.model_dump_json())

    def _expected(self, stream: str, error: MavstreamError) -> int:
        if isinstance(error, SequenceGap):
            return error.expected
        if stream not in self._streams:
            return 1
        return max(self._offered.get(stream, 0), self._streams.last_sequence(self.producer, stream)) + 1

    def _say(self, message: str) -> None:
        self._messages.append(message)
        self._woken()

    def _illegal(self, received: str) -> NotUnderstood:
        return NotUnderstood(f"in state '{self.state}' expected {_EXPECTED[self.state]}, received {received}")


def cut_reason(reason: str) -> str:
    """Return a reason that fits into a close frame: 123 bytes."""
    data = reason.encode(errors="replace")
    return reason if len(data) <= 123 else data[:120].decode(errors="ignore") + "..."


def _refused(code: str, detail: str) -> InvalidTuples:
    return InvalidTuples([ProblemItem(pointer="body", code=code, detail=detail)])
