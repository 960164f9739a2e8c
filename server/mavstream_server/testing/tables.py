"""Scripted tables: real files, with versions that a test makes current."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mavstream_server.columns.column import Column
from mavstream_server.tables.directory import Changes, TableDescription, VersionName
from mavstream_server.tables.file import VersionFile, write_version
from mavstream_server.tables.index_file import index_path, write_index
from mavstream_server.testing.clock import ManualClock
from mavstream_server.testing.streams import parse_fields


class ScriptedTable:
    """A table in a directory of its own; fields are given as for a scripted stream."""

    def __init__(self, directory: Path, name: str, fields: str, clock: ManualClock) -> None:
        self.name = name
        self.schema = parse_fields(fields)
        self.path = directory / name
        self.path.mkdir(parents=True)
        TableDescription(secrets.token_hex(8), self.schema).save(self.path)
        self._changes = Changes(self.path, create=True)
        self._clock = clock
        self.versions: list[VersionName] = []

    def put(self, *rows: Sequence[Any]) -> VersionName:
        """Store rows, tuples in schema order, as a version that is current from now on."""
        columns = {
            field.name: Column.from_list(field.type, [row[index] for row in rows])
            for index, field in enumerate(self.schema)
        }
        version = VersionName(len(self.versions) + 1, self._clock.now())
        write_version(version.within(self.path), columns, self.schema, len(rows), sync=False)
        self.versions.append(version)
        self._changes.add()
        return version

    def index(self, version: VersionName, *names: str) -> None:
        """Write the index of a version by columns, as the server does for large versions."""
        file = VersionFile(version.within(self.path))
        write_index(index_path(self.path, version.number, names), file, names, sync=False)

    def remove(self, version: VersionName) -> None:
        """Remove a version."""
        version.within(self.path).unlink()
        self._changes.add()

    def close(self) -> None:
        """Close the files."""
        self._changes.close()
