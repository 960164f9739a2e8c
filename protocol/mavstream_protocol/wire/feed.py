"""Messages of the feed websocket, `WS /v1/feed`.

A producer sends `hello` and receives `welcome`; then it sends `data`, each frame with the next sequence
number of its stream (1, 2, 3, ...), and receives cumulative acks for rows that are in the log. A rejected
frame was not appended: the same number is expected again. A number that was appended before is acked again
and ignored.

Data frames in JSON are text messages of the model `Data`; Arrow frames are binary messages (see `envelope`)
whose header is `DataHeader` and whose payload is one record batch message, with the stream's schema known.

A producer of many streams with the same schema can announce multi-stream messages in its `hello`
(`bundles`): binary messages whose header is a `MultiStreamHeader` and whose record batch contains the rows
of several frames, one after the other. Each frame has its own number and its own ack or reject, and counts
against its stream's credit with its `share` of the message. Such a producer receives its acks together, as
`Acks`.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
)

from mavstream_protocol.errors import Problem
from mavstream_protocol.names import Name

_CONFIG = ConfigDict(frozen=True, extra="forbid")


class Format(StrEnum):
    """Encoding of tuples."""

    ROWS = "rows"
    """JSON, a list of objects."""
    COLUMNS = "columns"
    """JSON, a list per column."""
    ARROW = "arrow"


class CloseCode(IntEnum):
    """Why the server closed a websocket, beyond the standard codes."""

    GOING_AWAY = 1001
    """The server stops; connect again later."""
    TOO_BIG = 1009
    NOT_UNDERSTOOD = 4400
    """A message that is none of the protocol's, or not expected now."""
    NOT_AUTHORISED = 4401
    FORBIDDEN = 4403
    UNKNOWN = 4404
    """The query is not known."""
    TOO_SLOW = 4408
    """The producer did not send its hello in time."""
    TAKEN = 4409
    """Another connection of the same producer has replaced this one."""
    LAGGING = 4410
    """The subscriber fell behind the log and had requested to be disconnected in this case."""
    TOO_MANY = 4429
    """More connections than the server allows."""


class Hello(BaseModel):
    """First message of a producer."""

    model_config = _CONFIG
    type: Literal["hello"] = "hello"
    producer: Name
    streams: tuple[Name, ...] = ()
    """The streams that it is going to feed; others can follow."""
    bundles: bool = False
    """Whether it sends multi-stream messages and gets its acks together."""

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Servers without support for multi-stream messages refuse a hello with this key.
        said: dict[str, Any] = handler(self)
        if not self.bundles:
            del said["bundles"]
        return said


class Data(BaseModel):
    """Rows for a stream, as JSON: exactly one of `rows` and `columns`."""

    model_config = _CONFIG
    type: Literal["data"] = "data"
    stream: Name
    sequence: Annotated[int, Field(ge=1)]
    rows: list[dict[str, Any]] | None = None
    columns: dict[str, list[Any]] | None = None


MultiStreamFrame = tuple[Name, Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]


class DataHeader(BaseModel):
    """Header of an Arrow record batch."""

    model_config = _CONFIG
    stream: Name
    sequence: Annotated[int, Field(ge=1)]


class MultiStreamHeader(BaseModel):
    """The header of a multi-stream message."""

    model_config = _CONFIG
    frames: Annotated[tuple[MultiStreamFrame, ...], Field(min_length=1)]
    """Stream, sequence and number of rows of each, in the order of the rows."""


def share(nbytes: int, rows: int, total: int) -> int:
    """Return the bytes that a frame of a multi-stream message counts against credit, by its rows."""
    return -(-nbytes * rows // total)


class End(BaseModel):
    """This producer will send no more rows for a stream."""

    model_config = _CONFIG
    type: Literal["end"] = "end"
    stream: Name


class StreamCredit(BaseModel):
    """A producer's last sequence number and credit for a stream."""

    model_config = _CONFIG
    last_sequence: int
    """The last sequence that is in the log; 0 if there is none."""
    credit: int
    """Bytes of data messages that may be under way without an ack."""


class Welcome(BaseModel):
    """Answer to `hello`."""

    model_config = _CONFIG
    type: Literal["welcome"] = "welcome"
    producer: Name
    delivery: Literal["process", "sync"]
    """What an acknowledged row survives: the death of any process, or also power loss."""
    streams: dict[str, StreamCredit]
    max_frame_bytes: int


class Ack(BaseModel):
    """All frames of a stream up to a sequence are in the log."""

    model_config = _CONFIG
    type: Literal["ack"] = "ack"
    stream: str
    sequence: int
    credit: int


class Acks(BaseModel):
    """The acks of several streams: sequence and credit of each."""

    model_config = _CONFIG
    type: Literal["acks"] = "acks"
    streams: dict[str, tuple[int, int]]


class Reject(BaseModel):
    """A frame was rejected; the frames before it are not affected."""

    model_config = _CONFIG
    type: Literal["reject"] = "reject"
    stream: str
    sequence: int
    expected: int
    """The sequence number that the server expects next."""
    problem: Problem


class Ended(BaseModel):
    """The end of a producer's rows for a stream is in the log."""

    model_config = _CONFIG
    type: Literal["ended"] = "ended"
    stream: str


FromProducer = Annotated[Hello | Data | End, Field(discriminator="type")]
ToProducer = Annotated[Welcome | Ack | Acks | Reject | Ended, Field(discriminator="type")]

from_producer: TypeAdapter[Hello | Data | End] = TypeAdapter(FromProducer)
to_producer: TypeAdapter[Welcome | Ack | Acks | Reject | Ended] = TypeAdapter(ToProducer)
