"""Websocket frames as bytes, right and wrong, and the reading of a server's frames."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_MASK = b"\x0f\xf0\x55\xaa"


def frame(opcode: int, payload: bytes, *, fin: bool = True, rsv: int = 0, mask: bool = True) -> bytes:
    """Return a frame of a client; `rsv` are the three reserved bits, the highest one is compression."""
    head = bytes([(fin << 7) | (rsv << 4) | opcode])
    length = len(payload)
    bit = 0x80 if mask else 0
    if length < 126:
        head += bytes([bit | length])
    elif length < 1 << 16:
        head += bytes([bit | 126]) + struct.pack(">H", length)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", length)
    return head + _MASK + masked(payload) if mask else head + payload


def masked(payload: bytes) -> bytes:
    """Return a payload XORed with the mask."""
    size = len(payload)
    key = int.from_bytes((_MASK * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


def compressed(payload: bytes) -> bytes:
    """Return a payload as `permessage-deflate` has it."""
    packer = zlib.compressobj(wbits=-15)
    return (packer.compress(payload) + packer.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")


class Received(NamedTuple):
    """A frame of the server."""

    opcode: int
    payload: bytes

    @property
    def close_code(self) -> int:
        """The code of a close frame; 1005 if it has none."""
        return int.from_bytes(self.payload[:2], "big") if len(self.payload) >= 2 else 1005


class FrameReader:
    """Splits what a server sends into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Received]:
        """Take bytes, and return the frames that they complete."""
        self._buffer += data
        frames = []
        while (found := self._next()) is not None:
            frames.append(found)
        return frames

    def _next(self) -> Received | None:
        if len(self._buffer) < 2:
            return None
        length, start = self._buffer[1] & 0x7F, 2
        for short, form in ((126, ">H"), (127, ">Q")):
            if length == short:
                start += struct.calcsize(form)
                if len(self._buffer) < start:
                    return None
                (length,) = struct.unpack_from(form, self._buffer, 2)
                break
        if len(self._buffer) < start + length:
            return None
        found = Received(self._buffer[0] & 0xF, bytes(self._buffer[start : start + length]))
        del self._buffer[: start + length]
        return found
