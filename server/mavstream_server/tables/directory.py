"""The directory of a table: its description, the names of its versions, and a count of changes.

A version's name holds the time from which it is current. Giving a file that name is what makes it a version;
the count goes up right behind that. One process does this, and stamps rows only after it: whoever has read a
row and then looks at the count knows of every version that is current at the row's arrival.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import orjson

from mavstream_protocol.schema import Schema
from mavstream_server.tables.errors import TableFilesError
from mavstream_server.tables.file import fields_json, schema_of

_DESCRIPTION, _CHANGES = "table.json", "changes"
_NAME = re.compile(r"(\d{10})-(\d{20})\.version")
_WORD = struct.Struct("<q")


class VersionName(NamedTuple):
    """A version by its running number, from 1, and the arrival time (ns) from which it is current."""

    number: int
    stamp: int

    def within(self, path: Path) -> Path:
        """Return the file of the version in its table's directory."""
        return path / f"{self.number:010d}-{self.stamp:020d}.version"


def list_versions(path: Path) -> list[VersionName]:
    """Return the versions in a table's directory, oldest first."""
    found = (_NAME.fullmatch(name) for name in os.listdir(path))
    return sorted(VersionName(int(match[1]), int(match[2])) for match in found if match)


class TableDescription(NamedTuple):
    """What holds for all versions of a table."""

    id: str
    """Tells it from another one that had its name before."""
    schema: Schema

    def save(self, path: Path, sync: bool = False) -> None:
        """Write it into a directory that nobody else knows yet."""
        text = orjson.dumps({"id": self.id, "fields": fields_json(self.schema)})
        with (path / _DESCRIPTION).open("wb") as stream:
            stream.write(text)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())

    @classmethod
    def load(cls, path: Path) -> TableDescription:
        """Read it; raises TableFilesError."""
        try:
            data = orjson.loads((path / _DESCRIPTION).read_bytes())
            return cls(data["id"], schema_of(data["fields"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TableFilesError(path, f"its description cannot be read ({error})") from None


class Changes:
    """A count of changes to a table's versions, mapped: looking at it costs well below a microsecond."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Map the count, which only who changes versions creates; raises TableFilesError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC if create else os.O_RDONLY | os.O_CLOEXEC
        try:
            fd = os.open(path / _CHANGES, flags, 0o644)
            try:
                if create:
                    os.ftruncate(fd, _WORD.size)
                access = mmap.ACCESS_WRITE if create else mmap.ACCESS_READ
                self._map = mmap.mmap(fd, _WORD.size, access=access)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            raise TableFilesError(path, f"its count of changes cannot be read ({error})") from None

    @property
    def count(self) -> int:
        """How often versions came or went."""
        count: int = _WORD.unpack_from(self._map)[0]
        return count

    def add(self) -> None:
        """Say that versions came or went."""
        _WORD.pack_into(self._map, 0, self.count + 1)

    def close(self) -> None:
        """Let the file go."""
        self._map.close()


def sync_directories(paths: Iterable[Path]) -> None:
    """Bring the names in directories to disk."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
