"""Checksums of frames: which frames of a segment are intact, and where damage ends."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from mavstream_server.log.format.layout import (
    CHECKED,
    COVERED,
    CRC_FROM,
    FRAME,
    FRAME_BYTES,
    FRAME_MAGIC,
    LOST_MAGIC,
    FrameKind,
    Header,
)
from mavstream_server.log.format.texts import AddedTexts, encode_texts, recover_texts

CHECKED_FIELDS = struct.Struct("<II8xq")
"""What checking a frame needs of its header: magic, checksum, length."""
_MAGIC = re.compile(re.escape(FRAME_MAGIC.to_bytes(4, "little")))


class DamagedBytes(NamedTuple):
    """A part of a segment that is not intact, up to the next intact frame."""

    offset: int
    stop: int
    """The byte offset of the next intact frame, or the end of the segment."""
    start_position: int
    """The position of the first row that may be lost."""
    stop_position: int | None
    """The position of the first row behind the damage; None if no intact frame follows."""
    repaired: bool = False
    """Whether a repair has recorded the loss: then the bytes are as they should be."""


class IntactFrame(NamedTuple):
    """An intact frame and its byte offset."""

    offset: int
    header: Header


def intact_header(view: memoryview, offset: int, limit: int, magic: int = FRAME_MAGIC) -> Header | None:
    """Return the header of the frame at a byte offset if the whole frame is intact, else None."""
    if offset + FRAME_BYTES > limit:
        return None
    header = Header._make(FRAME.unpack_from(view, offset))
    length = header.length
    if header.magic != magic or not FRAME_BYTES <= length <= limit - offset or length % 8:
        return None
    return header if crc32(view[offset + CRC_FROM : offset + length]) == header.crc else None


def examine(view: memoryview, offset: int, limit: int, position: int) -> IntactFrame | DamagedBytes:
    """Return the frame at a byte offset, or how far the damage there reaches.

    `position` is that of the first row behind the frame before.
    """
    header = intact_header(view, offset, limit)
    if header is not None:
        return IntactFrame(offset, header)
    lost = intact_header(view, offset, limit, LOST_MAGIC)
    if lost is not None:
        return DamagedBytes(offset, offset + lost.length, position, lost.position + lost.sequence, True)
    stop = _next_intact(view, offset, limit, position)
    following = intact_header(view, stop, limit) or intact_header(view, stop, limit, LOST_MAGIC)
    return DamagedBytes(offset, stop, position, None if following is None else following.position)


def walk(view: memoryview, offset: int, limit: int, position: int) -> Iterator[IntactFrame | DamagedBytes]:
    """Yield all frames of a segment up to a byte offset, and the damage between them."""
    while offset < limit:
        found = examine(view, offset, limit, position)
        yield found
        if isinstance(found, IntactFrame):
            header = found.header
            offset += header.length
            position = header.position + (header.rows if header.kind == FrameKind.DATA else 0)
        else:
            offset = found.stop
            position = position if found.stop_position is None else found.stop_position


def _next_intact(view: memoryview, offset: int, limit: int, position: int) -> int:
    """Return the byte offset of the first intact frame behind a damaged one, or the limit."""
    if offset + FRAME_BYTES <= limit:
        # The length in the header may be right, and is preferred: rows could contain the bytes of a frame.
        stop = offset + Header._make(FRAME.unpack_from(view, offset)).length
        if offset + FRAME_BYTES <= stop <= limit and stop % 8 == 0 and _is_next(view, stop, limit, position):
            return stop
    for match in _MAGIC.finditer(view[offset + 8 : limit]):
        found = offset + 8 + match.start()
        if found % 8 == 0 and _is_next(view, found, limit, position):
            return found
    return limit


def _is_next(view: memoryview, offset: int, limit: int, position: int) -> bool:
    if offset == limit:
        return True
    header = intact_header(view, offset, limit) or intact_header(view, offset, limit, LOST_MAGIC)
    return header is not None and header.position >= position


def lost_frame(view: memoryview, damage: DamagedBytes, stop_position: int) -> bytes:
    """Return the bytes that replace a damaged part in a repair: they record which rows were lost.

    Texts that are intact are kept, since the frames behind need them.
    """
    length = damage.stop - damage.offset
    texts = recover_texts(view, damage.offset, damage.stop)
    body = encode_texts(_distinct(texts)) if texts else b""
    if FRAME_BYTES + len(body) > length:
        body = b""
    body += bytes(length - FRAME_BYTES - len(body))
    start = damage.start_position
    covered = COVERED.pack(0, 0, 0, length, start, 0, 0, stop_position - start, *bytes(7))
    return CHECKED.pack(LOST_MAGIC, crc32(body, crc32(covered))) + covered + body


def _distinct(texts: list[AddedTexts]) -> list[AddedTexts]:
    return list({(each.field, each.first_code): each for each in texts}.values())
