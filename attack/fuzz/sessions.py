"""Generator of websocket sessions: producers and subscribers that break the protocol in every way.

Session `number` of a seed is always the same; each producer has a name of its own, so that its sequences
begin at 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from attack.fuzz.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, compressed, frame
from attack.fuzz.mutations import changed, encoded, flip, strange
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.tuples import decode_rows, encode_message
from mavstream_protocol.wire.envelope import seal

STREAMS = ("socket_a", "socket_b")
FIELDS = (Field("n", FieldType.INT), Field("s", FieldType.STRING, nullable=True))
_SCHEMA = Schema(FIELDS)
_BOMB = compressed(bytes(64 << 20))
_MOST_MESSAGES = 40


class Ending(Enum):
    """How a session ends."""

    PING = "a ping, which must be answered"
    CLOSE = "a close frame, which must be answered"
    ABORT = "a reset connection"
    CUT = "a frame that is cut off, then the end of the connection"


class Session(NamedTuple):
    """A websocket session before it is sent."""

    path: str
    compression: bool
    """Whether it offers compression."""
    frames: list[bytes]
    ending: Ending


def session(seed: int, number: int, query: str) -> Session:
    """Return session `number` of a seed; `query` is the id of a query to subscribe to."""
    random = Random(f"{seed}/session/{number}")
    if random.random() < 0.25:
        path, compression, frames = _subscription(random, query), False, _chatter(random)
    else:
        path, compression = "/v1/feed", random.random() < 0.2
        frames = _feed(random, producer(seed, number))
    ending = random.choice((Ending.PING, Ending.PING, Ending.CLOSE, Ending.ABORT, Ending.CUT))
    if frames and random.random() < 0.2:
        # Its length may be wrong, so that the server waits for the rest: nothing behind it has a meaning.
        frames[-1], ending = flip(random, frames[-1]), random.choice((Ending.ABORT, Ending.CUT))
    return Session(path, compression, frames, ending)


def producer(seed: int, number: int) -> str:
    """Return the name of the producer of a session."""
    return f"socket_{seed}_{number}"


def _subscription(random: Random, query: str) -> str:
    parameters: Any = {
        "after": random.choice((-1, 0, 5, "latest")),
        "format": random.choice(("rows", "arrow")),
    }
    parameters["on_lag"] = random.choice(("gap", "disconnect"))
    if random.random() < 0.5:
        parameters = changed(random, parameters)
    if not isinstance(parameters, dict):
        parameters = {"after": parameters}
    pairs = "&".join(f"{quote(str(name))}={quote(str(value))}" for name, value in parameters.items())
    named = query if random.random() < 0.8 else quote(str(strange(random, 1)), safe="")
    return f"/v1/queries/{named}/results?{pairs}"[:4000]


def _chatter(random: Random) -> list[bytes]:
    """Return messages of a subscriber, which has nothing to say."""
    return [_wire(random, TEXT, encoded(random, strange(random))) for _ in range(random.randrange(6))]


def _feed(random: Random, name: str) -> list[bytes]:
    hello: Any = {"type": "hello", "producer": name, "streams": list(STREAMS)}
    if random.random() < 0.3:
        hello["bundles"] = True
    if random.random() < 0.1:
        hello = changed(random, hello)
    frames = [frame(TEXT, encoded(random, hello))] if random.random() < 0.95 else []
    sequences = dict.fromkeys(STREAMS, 0)
    for _ in range(random.randrange(_MOST_MESSAGES)):
        stream = random.choice(STREAMS)
        sequences[stream] += 1
        opcode, payload = random.choice(_MESSAGES)(random, stream, sequences[stream])
        frames.append(_wire(random, opcode, payload))
    return frames


def _rows(random: Random) -> list[dict[str, Any]]:
    return [
        {"n": random.randrange(1 << 40), "s": random.choice((None, "a", "ü"))}
        for _ in range(random.randrange(5))
    ]


def _json_rows(random: Random, stream: str, sequence: int) -> tuple[int, bytes]:
    message: Any = {"type": "data", "stream": stream, "sequence": sequence, "rows": _rows(random)}
    if random.random() < 0.3:
        message["sequence"] = random.choice(
            (0, -1, sequence - 1, sequence + 1, 2**63 - 1, 2**63, 1.5, "1", None)
        )
    elif random.random() < 0.3:
        message = changed(random, message)
    return TEXT, encoded(random, message)


def _json_columns(random: Random, stream: str, sequence: int) -> tuple[int, bytes]:
    columns: Any = {"n": [1, 2], "s": ["a", None]}
    if random.random() < 0.5:
        columns = changed(random, columns)
    message = {"type": "data", "stream": stream, "sequence": sequence, "columns": columns}
    return TEXT, encoded(random, message)


def _arrow(random: Random, stream: str, sequence: int) -> tuple[int, bytes]:
    header: Any = {"stream": stream, "sequence": sequence}
    payload = encode_message(_batch(random))
    if random.random() < 0.6:
        for _ in range(random.randrange(1, 4)):
            payload = flip(random, payload)
    if random.random() < 0.2:
        header = changed(random, header)
    return BINARY, seal(encoded(random, header), payload)


def _multi_stream(random: Random, stream: str, sequence: int) -> tuple[int, bytes]:
    batch = _batch(random)
    frames: Any = {"frames": [[stream, sequence, batch.num_rows], ["socket_b", 1, 0]]}
    if random.random() < 0.6:
        frames = changed(random, frames)
    return BINARY, seal(encoded(random, frames), encode_message(batch))


def _batch(random: Random) -> pa.RecordBatch:
    return decode_rows(_SCHEMA, _rows(random))


def _end(random: Random, stream: str, sequence: int) -> tuple[int, bytes]:
    return TEXT, encoded(random, {"type": "end", "stream": stream})


def _foreign(random: Random, stream: str, sequence: int) -> tuple[int, bytes]:
    kind = random.choice(("hello", "welcome", "ack", "acks", "reject", "ended", "data", "nonsense", ""))
    return TEXT, encoded(random, {"type": kind, str(strange(random, 1)): strange(random)})


def _garbage(random: Random, stream: str, sequence: int) -> tuple[int, bytes]:
    return random.choice((TEXT, BINARY)), random.randbytes(random.choice((0, 1, 4, 100, 3000)))


def _wrong_length(random: Random, stream: str, sequence: int) -> tuple[int, bytes]:
    return BINARY, struct.pack("<I", random.choice((0, 1, 2**31, 2**32 - 1))) + random.randbytes(20)


_MESSAGES: tuple[Callable[[Random, str, int], tuple[int, bytes]], ...] = (
    *(_json_rows,) * 6,
    *(_json_columns,) * 3,
    *(_arrow,) * 6,
    *(_multi_stream,) * 3,
    *(_end, _foreign, _garbage, _wrong_length),
)


def _wire(random: Random, opcode: int, payload: bytes) -> bytes:
    """Return a message as frames: mostly one, else fragments, control frames in between, or wrong frames."""
    if random.random() < 0.75:
        return frame(opcode, payload)
    half = len(payload) // 2
    match random.randrange(9):
        case 0:
            return frame(opcode, payload[:half], fin=False) + frame(CONTINUATION, payload[half:])
        case 1:
            pieces = [
                frame(CONTINUATION, payload[place : place + 1], fin=False) for place in range(len(payload))
            ]
            return frame(opcode, b"", fin=False) + b"".join(pieces[:2000]) + frame(CONTINUATION, b"")
        case 2:
            middle = frame(random.choice((PING, PONG)), random.randbytes(random.randrange(126)))
            return frame(opcode, payload[:half], fin=False) + middle + frame(CONTINUATION, payload[half:])
        case 3:
            return frame(CONTINUATION, payload)
        case 4:
            return frame(opcode, payload, mask=False)
        case 5:
            return frame(random.randrange(16), payload[:200], rsv=random.randrange(8))
        case 6:
            return frame(opcode, compressed(payload), rsv=4)
        case 7:
            return frame(opcode, random.choice((payload, _BOMB)), rsv=4)
        case _:
            code = struct.pack(">H", random.choice((0, 999, 1000, 1005, 1006, 3000, 4400, 65535)))
            return frame(CLOSE, random.choice((b"", b"\x03", code, code + b"\xff\xfe", code + b"x" * 200)))
