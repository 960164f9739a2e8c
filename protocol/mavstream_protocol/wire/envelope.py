"""Binary messages: a JSON header and a payload in one websocket message."""

from __future__ import annotations

import struct

from mavstream_protocol.errors import InvalidTuples, ProblemItem

_LENGTH = struct.Struct("<I")


def seal(header: bytes, payload: bytes) -> bytes:
    """Put a header (JSON) in front of a payload."""
    return _LENGTH.pack(len(header)) + header + payload


def unseal(message: bytes) -> tuple[bytes, memoryview]:
    """Split a message into its header and a view of its payload; raises InvalidTuples."""
    if len(message) < _LENGTH.size:
        raise InvalidTuples([_item(f"expected at least {_LENGTH.size} bytes, got {len(message)}")])
    (length,) = _LENGTH.unpack_from(message)
    end = _LENGTH.size + length
    if end > len(message):
        raise InvalidTuples([_item(f"the header should have {length} bytes, the message has {len(message)}")])
    return message[_LENGTH.size : end], memoryview(message)[end:]


def _item(detail: str) -> ProblemItem:
    what = "a binary message is a 4-byte little-endian length, a JSON header of that length and a payload"
    return ProblemItem(pointer="body", code="invalid_envelope", detail=f"{what}; {detail}")
