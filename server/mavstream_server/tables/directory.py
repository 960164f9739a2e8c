"""The directory of a table: its description, the names of its versions, and a count of changes.

The file name of a version contains the time from which it is current. Renaming a draft to that name makes it
a version; the count is incremented directly afterwards. The process that does this also stamps the arrival
times of rows, so a reader that checks the count after reading a row knows every version that was current when
the row arrived.
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
    """The number of a version, from 1, and the arrival time (ns) from which it is current."""

    number: int
    stamp: int

    def within(self, path: Path) -> Path:
        """Return the file of the version in its table's directory."""
        return path / f"{self.number:010d}-{self.stamp:020d}.version"


def table_names(directory: Path) -> list[str]:
    """Return the names of the tables in a directory; other names begin with a dot."""
    if not directory.is_dir():
        return []
    return sorted(path.name for path in directory.iterdir() if path.is_dir() and path.name[0] != ".")


def list_versions(path: Path) -> list[VersionName]:
    """Return the versions in a table's directory, oldest first."""
    found = (_NAME.fullmatch(name) for name in os.listdir(path))
    return sorted(VersionName(int(match[1]), int(match[2])) for match in found if match)


class TableDescription(NamedTuple):
    """The properties that all versions of a table share."""

    id: str
    """Distinguishes the table from an earlier one of the same name."""
    schema: Schema

    def save(self, path: Path, sync: bool = False) -> None:
        """Write the description to a directory that no reader uses yet."""
        text = orjson.dumps({"id": self.id, "fields": fields_json(self.schema)})
        with (path / _DESCRIPTION).open("wb") as stream:
            stream.write(text)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())

    @classmethod
    def load(cls, path: Path) -> TableDescription:
        """Read the description of a table's directory; raises TableFilesError."""
        try:
            data = orjson.loads((path / _DESCRIPTION).read_bytes())
            return cls(data["id"], schema_of(data["fields"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TableFilesError(
                path, f"the description cannot be read ({error}); remove the directory, put the table again"
            ) from None


class Changes:
    """A memory-mapped count of changes to a table's versions; reading it takes well below a microsecond."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Map the count; only the process that changes versions creates it. Raises TableFilesError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC if create else os.O_RDONLY | os.O_CLOEXEC
        try:
            fd = os.open(path / _CHANGES, flags, 0o600)
            try:
                if create:
                    os.ftruncate(fd, _WORD.size)
                access = mmap.ACCESS_WRITE if create else mmap.ACCESS_READ
                self._map = mmap.mmap(fd, _WORD.size, access=access)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            raise TableFilesError(
                path, f"the count of changes cannot be read ({error}); restart the server"
            ) from None

    @property
    def count(self) -> int:
        """How often versions were added or removed."""
        count: int = _WORD.unpack_from(self._map)[0]
        return count

    def add(self) -> None:
        """Increment the count, after versions were added or removed."""
        _WORD.pack_into(self._map, 0, self.count + 1)

    def close(self) -> None:
        """Close the map."""
        self._map.close()


def sync_directories(paths: Iterable[Path]) -> None:
    """Sync the names in directories to disk."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
