"""Lines of a pipe, handed on as soon as they are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

_MOST_BYTES = 1 << 18


class Pipe(Protocol):
    """A binary stream that returns what there is: `sys.stdin.buffer`."""

    def read1(self, size: int, /) -> bytes:
        """Return the bytes that are there, waiting for the first; empty at the end."""


class Chunk(NamedTuple):
    """Complete lines."""

    content: bytes
    first_line: int
    """The number of the first line, from 1."""


def chunks(pipe: Pipe) -> Iterator[Chunk]:
    """Yield complete lines as they come; the last one may lack its end."""
    parts: list[bytes] = []
    line = 1
    while data := pipe.read1(_MOST_BYTES):
        head, end, rest = data.rpartition(b"\n")
        if not end:
            parts.append(data)
            continue
        content = b"".join((*parts, head, end))
        parts = [rest] if rest else []
        yield Chunk(content, line)
        line += content.count(b"\n")
    if parts:
        yield Chunk(b"".join((*parts, b"\n")), line)


def without_header(source: Iterator[Chunk]) -> tuple[bytes, Iterator[Chunk]]:
    """Return the first line, empty if there is none, and the lines behind it."""
    first = next(source, None)
    if first is None:
        return b"", source
    header, _, rest = first.content.partition(b"\n")

    def behind() -> Iterator[Chunk]:
        if rest:
            yield Chunk(rest, first.first_line + 1)
        yield from source

    return header + b"\n", behind()
