"""The session of one producer's connection, without I/O: messages in, messages out.

    new --hello--> feeding --(taken over, malformed message, stop)--> closed

In state `feeding` it accepts data and ends; acks and rejects follow when the appends are settled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from mavstream_protocol.errors import InvalidTuples, MavstreamError, ProblemItem
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples import decode_columns, decode_message, decode_rows
from mavstream_protocol.wire.envelope import unseal
from mavstream_protocol.wire.feed import CloseCode, Ended, Hello, Reject, Welcome, share
from mavstream_server.columns.arrow import columns_from_arrow
from mavstream_server.columns.column import Column
from mavstream_server.core.errors import Forbidden, NotFound, SequenceGap, problem_of
from mavstream_server.core.principal import ANYBODY, Principal
from mavstream_server.ingest.messages import Close, NotUnderstood, address, cut_reason, kind, parse
from mavstream_server.ingest.multi_stream import MessageRows, frames_of_message
from mavstream_server.ingest.stream_store import Accepted, AppendHandle, Repeated, StreamStore
from mavstream_server.ingest.traffic import Traffic
from mavstream_server.log.format.shared_columns import RowSlice

_LARGEST_HELLO = 256 << 10
_DATA_KEYS = frozenset({"type", "stream", "sequence", "rows", "columns"})
_HEADER_KEYS = frozenset({"stream", "sequence"})


class FeedState(StrEnum):
    """The states of a connection."""

    NEW = "new"
    FEEDING = "feeding"
    CLOSED = "closed"


_EXPECTED = {FeedState.NEW: "hello", FeedState.FEEDING: "data or end", FeedState.CLOSED: "nothing"}


class ProducerSession:
    """The protocol state of one connection. `woken` is called when there is something to send."""

    def __init__(
        self,
        streams: StreamStore,
        traffic: Traffic,
        delivery: Any,
        max_frame_bytes: int,
        woken: Callable[[], object],
        connected: Callable[[ProducerSession], object],
        principal: Principal = ANYBODY,
    ) -> None:
        """`connected` is called with the hello; it raises Forbidden if the producer is somebody else's."""
        self.principal = principal
        self._restricted = not principal.uses_all_streams
        self._permitted: set[str] = set()  # streams that a restricted principal was found to be allowed
        self.state = FeedState.NEW
        self.producer = ""
        self.multi_stream = False
        """Whether it sends multi-stream messages and gets the acks of all streams in one message."""
        self.rows = 0
        """Rows that were received, for quotas."""
        self.closing: Close | None = None
        self._streams = streams
        self._enqueuer = streams.enqueuer
        self._traffic = traffic
        self._delivery = delivery
        self._max_frame_bytes = max_frame_bytes
        self._woken = woken
        self._connected = connected
        self._messages: list[str] = []
        self._acks: dict[str, int] = {}  # by stream, the sequence to ack; acks are cumulative
        # By stream, the last sequence that was enqueued and has not failed.
        self._offered: dict[str, int] = {}
        self._fed: set[str] = set()  # streams that it named or sent rows to: it is told of returned credit
        self._importance = 0
        self._importance_of = (-1, 0)  # what the importance was found for: its version, the number of streams
        self._arrival = 0  # arrival time of the current message and its rows, in ns

    @property
    def importance(self) -> int:
        """The importance of the most important stream that the connection feeds."""
        importance = self._streams.importance
        found_for = (importance.version, len(self._fed))
        if found_for != self._importance_of:
            self._importance_of = found_for
            self._importance = max(map(importance.of_stream, self._fed), default=0)
        return self._importance

    # Incoming messages

    def received(self, message: str | bytes, arrival: int = 0) -> None:
        """Handle a message; errors become reject messages or close the connection.

        `arrival` is its arrival time in ns, 0 for now.
        """
        self._arrival = arrival or self._streams.now()
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
            raise NotUnderstood(f"hello may have at most {_LARGEST_HELLO} characters: name fewer streams")
        parsed = parse(message)
        if parsed.get("type") != "hello":
            raise self._illegal(kind(parsed))
        try:
            hello = Hello.model_validate(parsed)
        except ValidationError as error:
            first = causes(error.errors(include_url=False))[0]
            raise NotUnderstood(f"hello: {sentence(first, quoted(first, 'the message'))}") from None
        self.producer = hello.producer
        try:
            self._connected(self)
        except Forbidden as error:
            self.close(CloseCode.FORBIDDEN, str(error))
            return
        self.state, self.multi_stream = FeedState.FEEDING, hello.bundles
        # Unknown streams are left out: they may be created before their first frame is sent.
        named = (name for name in hello.streams if name in self._streams and self._permits(name))
        known = {name: self._streams.producer_credit(hello.producer, name) for name in named}
        self._fed.update(known)
        self._send(
            Welcome(
                producer=hello.producer,
                delivery=self._delivery,
                streams=known,
                max_frame_bytes=self._max_frame_bytes,
            ).model_dump_json()
        )

    def _text(self, message: str) -> None:
        parsed = parse(message)
        type_ = parsed.get("type")
        if type_ == "data":
            self._data(parsed, len(message))
        elif type_ == "end":
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
            self.rows += batch.num_rows
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
            self._multi_stream_message(parsed, payload, len(message))
            return
        stream, sequence = address(parsed.get("stream"), parsed.get("sequence"))
        try:
            if parsed.keys() - _HEADER_KEYS:
                raise _refused("unknown_key", "the header of an Arrow frame has 'stream' and 'sequence' only")
            schema = self._schema(stream)
            batch = decode_message(schema, payload)
            self.rows += batch.num_rows
            columns = columns_from_arrow(batch, schema)
            self._offer(stream, sequence, columns, batch.num_rows, len(message))
        except MavstreamError as error:
            self._reject(stream, sequence, error)

    def _multi_stream_message(self, header: dict[str, Any], payload: memoryview, nbytes: int) -> None:
        if not self.multi_stream:
            raise NotUnderstood("multi-stream messages need a hello with 'bundles': true")
        frames = frames_of_message(header)
        total = sum([rows for _, _, rows in frames])
        self.rows += total
        first = next((stream for stream, _, _ in frames if stream in self._streams), None)
        rows: MessageRows | MavstreamError | None = None
        if first is not None:
            try:
                rows = MessageRows(first, self._schema(first), payload, total)
            except MavstreamError as error:
                rows = error
        shared = rows.shared if isinstance(rows, MessageRows) else None
        join, done, counts, offered = (
            self._enqueuer.join_rows,
            self._settled,
            self._traffic.received,
            self._offered,
        )
        start, restricted = 0, self._restricted
        for stream, sequence, count in frames:
            size = share(nbytes, count, total)
            permitted = not restricted or stream in self._permitted
            if (
                shared is not None
                and permitted
                and join(
                    self.producer, stream, sequence, RowSlice(shared, start, count, self._arrival), size, done
                )
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
            part = self._frame_rows(stream, rows, start, count)
            self._offer(stream, sequence, part, count, nbytes)
        except MavstreamError as error:
            self._reject(stream, sequence, error)

    def _frame_rows(
        self, stream: str, rows: MessageRows | MavstreamError | None, start: int, count: int
    ) -> Mapping[str, Column] | RowSlice:
        schema = self._schema(stream)
        if isinstance(rows, MavstreamError):
            raise rows
        assert rows is not None, "a stream of the message is known"
        return rows.part(stream, schema, start, count, self._arrival)

    def _offer(
        self, stream: str, sequence: int, rows: Mapping[str, Column] | RowSlice, count: int, nbytes: int
    ) -> None:
        self._traffic.received[stream] += count
        try:
            self._enqueuer.offer_columns(
                self.producer,
                stream,
                sequence,
                [rows] if isinstance(rows, RowSlice) else rows,
                count,
                nbytes,
                arrival=self._arrival,
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
        if self._restricted and not self._permits(stream):
            self.principal.require_stream(stream)
        return shape.schema

    def _permits(self, stream: str) -> bool:
        """Return whether a stream that exists may be fed; looked up once per stream."""
        if stream not in self._permitted and self.principal.may_use_stream(stream):
            self._permitted.add(stream)
        return stream in self._permitted

    def _end(self, end: dict[str, Any]) -> None:
        stream = end.get("stream")
        if not isinstance(stream, str) or end.keys() != {"type", "stream"}:
            raise NotUnderstood("end: expected exactly 'type' and 'stream', a name")
        try:
            self._schema(stream)
            self._streams.end(self.producer, stream, self._ended)
        except MavstreamError as error:
            self._reject(stream, 0, error)

    # Settled appends

    def _settled(self, handle: AppendHandle) -> None:
        """Ack or reject a frame: it is in the log, was there before, or could not be written."""
        outcome, stream = handle.outcome, handle.stream
        if isinstance(outcome, Accepted):
            self._traffic.acked[stream] += outcome.rows
            self._ack(stream, outcome.sequence)
        elif isinstance(outcome, Repeated):
            self._traffic.repeated[stream] += 1
            self._ack(stream, outcome.last)
        elif handle.error is not None:
            self._offered.pop(stream, None)
            for sequence in range(handle.first, handle.sequence + 1):
                self._reject(stream, sequence, handle.error)

    def _ended(self, handle: AppendHandle) -> None:
        if handle.error is not None:
            self._reject(handle.stream, 0, handle.error)
            return
        self._send_acks((handle.stream,))
        self._send(Ended(stream=handle.stream).model_dump_json())

    def credit_returned(self, stream: str) -> None:
        """Send the last ack of a stream that was held again, with its new credit."""
        if stream in self._fed:
            self._ack(stream, self._streams.last_sequence(self.producer, stream))

    # Outgoing messages

    def take(self) -> list[str]:
        """Return the messages to send now, in order; acks are built here, so that they carry the latest."""
        self._send_acks(tuple(self._acks))
        messages, self._messages = self._messages, []
        return messages

    @property
    def unsent(self) -> int:
        """Messages that wait to be sent."""
        return len(self._messages)

    def close(self, code: int, reason: str) -> None:
        """Close the connection after the messages that wait."""
        if self.state is not FeedState.CLOSED:
            self.state = FeedState.CLOSED
            self.closing = Close(code, cut_reason(reason))
            self._woken()

    def _ack(self, stream: str, sequence: int) -> None:
        if sequence >= self._acks.get(stream, 0):
            self._acks[stream] = sequence
        self._woken()

    def _send_acks(self, streams: tuple[str, ...]) -> None:
        # Formatted by hand: acks follow every flush, and names of streams need no escapes.
        combined: list[str] = []
        for stream in streams:
            sequence = self._acks.pop(stream, None)
            if sequence is not None and stream in self._streams:
                credit = self._streams.credit(self.producer, stream)
                if self.multi_stream:
                    combined.append(f'"{stream}":[{sequence},{credit}]')
                else:
                    self._messages.append(
                        f'{{"type":"ack","stream":"{stream}","sequence":{sequence},"credit":{credit}}}'
                    )
        if combined:
            self._messages.append(f'{{"type":"acks","streams":{{{",".join(combined)}}}}}')

    def _reject(self, stream: str, sequence: int, error: MavstreamError) -> None:
        self._traffic.rejected[stream if stream in self._streams else "unknown"] += 1
        self._send_acks((stream,))
        expected, problem = self._expected(stream, error), problem_of(error)
        reject = Reject(stream=stream[:64], sequence=sequence, expected=expected, problem=problem)
        self._send(reject.model_dump_json())

    def _expected(self, stream: str, error: MavstreamError) -> int:
        if isinstance(error, SequenceGap):
            return error.expected
        if stream not in self._streams:
            return 1
        return max(self._offered.get(stream, 0), self._streams.last_sequence(self.producer, stream)) + 1

    def _send(self, message: str) -> None:
        self._messages.append(message)
        self._woken()

    def _illegal(self, received: str) -> NotUnderstood:
        return NotUnderstood(f"in state '{self.state}' expected {_EXPECTED[self.state]}, received {received}")


def _refused(code: str, detail: str) -> InvalidTuples:
    return InvalidTuples([ProblemItem(pointer="body", code=code, detail=detail)])
