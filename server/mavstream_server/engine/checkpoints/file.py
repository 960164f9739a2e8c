"""Checkpoint files: a header that the API process reads, and a query's snapshot, with checksums."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

import orjson
from zlib_ng.zlib_ng import crc32

from mavstream_protocol.errors import MavstreamError
from mavstream_server.core.storage import failpoints

VERSION = 1
_MAGIC = b"MvCp"
# Magic, version, checksum and length of the header, checksum and length of the snapshot.
_PREFIX = struct.Struct("<4sIIIIQ")


class CheckpointUnusable(MavstreamError):
    """A checkpoint that is damaged, of another version, or that the logs do not fit any more."""

    code = "checkpoint_unusable"


@dataclass(frozen=True, slots=True)
class CheckpointHeader:
    """Where a query was when its checkpoint was taken."""

    query: str
    positions: Mapping[str, int]
    """The position from which rows are read again, by stream; empty for a paused query."""
    offset: int
    """The offset of the next result row."""
    taken_us: int
    """When it was taken (UTC)."""
    paused: bool = False
    plan_version: int = 0
    """The version of the plan that ran: 0 for the registered one."""
    plan: str | None = None
    """That plan as JSON; None for the registered one."""
    oldest_arrival: int | None = None
    """The lowest arrival time (ns) of the rows that were read and may still join a stored table."""
    revision: int = 0
    """How often the query's plan had been replaced."""
    seam: tuple[int, Mapping[str, tuple[int, int]]] | None = None
    """Where that happened for the last time in this engine: the offset, and what was not retained."""


def write(path: Path, header: CheckpointHeader, snapshot: bytes, *, sync: bool = False) -> int:
    """Write a checkpoint atomically and return its size in bytes; raises OSError."""
    head = orjson.dumps(asdict(header))
    prefix = _PREFIX.pack(_MAGIC, VERSION, crc32(head), len(head), crc32(snapshot), len(snapshot))
    draft = path.with_suffix(".draft")
    try:
        with open(draft, "wb", buffering=0) as file:
            _write_all(file.fileno(), prefix + head, 0)
            _write_all(file.fileno(), snapshot, len(prefix) + len(head))
            if sync:
                failpoints.hit("checkpoint.fsync.before")
                os.fsync(file.fileno())
                failpoints.hit("checkpoint.fsync.after")
        failpoints.hit("checkpoint.rename.before")
        os.replace(draft, path)
        failpoints.hit("checkpoint.rename.after")
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    return len(prefix) + len(head) + len(snapshot)


def _write_all(fd: int, data: bytes, offset: int) -> None:
    pwrite, rest = failpoints.pwrite("checkpoint.write"), memoryview(data)
    while rest:
        written = pwrite(fd, rest, offset)
        rest, offset = rest[written:], offset + written


def read_header(path: Path) -> CheckpointHeader:
    """Read the header of a checkpoint; raises CheckpointUnusable."""
    try:
        with open(path, "rb") as file:
            prefix = file.read(_PREFIX.size)
            return _header(path, prefix, file.read(_parse(path, prefix).head_length))
    except OSError as error:
        raise CheckpointUnusable(f"checkpoint {path.name} cannot be read: {error.strerror}") from None


def read(path: Path) -> tuple[CheckpointHeader, memoryview]:
    """Read a whole checkpoint and verify its checksums; raises CheckpointUnusable.

    The snapshot is mapped, not copied: it may have hundreds of megabytes.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = memoryview(mmap(file.fileno(), size, access=ACCESS_READ) if size else b"")
    except OSError as error:
        raise CheckpointUnusable(f"checkpoint {path.name} cannot be read: {error.strerror}") from None
    prefix = bytes(data[: _PREFIX.size])
    parsed = _parse(path, prefix)
    begin = _PREFIX.size + parsed.head_length
    header, snapshot = _header(path, prefix, bytes(data[_PREFIX.size : begin])), data[begin:]
    if len(snapshot) != parsed.length or crc32(snapshot) != parsed.checksum:
        raise CheckpointUnusable(
            f"checkpoint {path.name} is damaged: expected {parsed.length} bytes with checksum "
            f"{parsed.checksum:08x}, got {len(snapshot)} with {crc32(snapshot):08x}"
        )
    return header, snapshot


class _Prefix(NamedTuple):
    magic: bytes
    version: int
    head_checksum: int
    head_length: int
    checksum: int
    length: int


def _parse(path: Path, prefix: bytes) -> _Prefix:
    if len(prefix) < _PREFIX.size or prefix[:4] != _MAGIC:
        raise CheckpointUnusable(f"{path.name} is not a checkpoint: it begins with {prefix[:4]!r}")
    parsed = _Prefix(*_PREFIX.unpack(prefix))
    if parsed.version != VERSION:
        raise CheckpointUnusable(
            f"checkpoint {path.name} has version {parsed.version}, this program reads version {VERSION}"
        )
    return parsed


def _header(path: Path, prefix: bytes, head: bytes) -> CheckpointHeader:
    parsed = _parse(path, prefix)
    if len(head) != parsed.head_length or crc32(head) != parsed.head_checksum:
        raise CheckpointUnusable(f"checkpoint {path.name} is damaged: the checksum of its header is wrong")
    return CheckpointHeader(**orjson.loads(head))
