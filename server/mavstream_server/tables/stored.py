"""Stored tables for joins: the version that was current at a time, and its columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np

from mavstream_protocol.schema import FieldType, Schema
from mavstream_server.columns.column import DTYPES, Column, Ints
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.columns.pieces import Steps, finished
from mavstream_server.tables.directory import Changes, TableDescription, VersionName, list_versions
from mavstream_server.tables.errors import TableFilesError
from mavstream_server.tables.file import VersionFile
from mavstream_server.tables.index_file import LARGE, VersionIndex, building_index, index_path, open_index
from mavstream_server.tables.texts import UsedTexts

Made = TypeVar("Made")

NO_VERSION = 0
"""The number of the empty version that is current before the first one."""


class LoadedVersion:
    """The rows of a version. Immutable; derived objects are created once and shared by all users."""

    def __init__(self, number: int, file: VersionFile | None, schema: Schema, folder: Path) -> None:
        """Without a file it has no rows."""
        self.number = number
        self.rows = 0 if file is None else file.rows
        self._file = file
        self._schema = schema
        self._folder = folder
        self._columns: dict[str, Column] = {}
        self._used: dict[str, UsedTexts] = {}
        self._made: dict[Hashable, object] = {}

    def column(self, name: str) -> Column:
        """Return a column; for strings, all texts are loaded into memory."""
        if name not in self._columns:
            self._columns[name] = self._empty(name) if self._file is None else self._file.column(name)
        return self._columns[name]

    def _empty(self, name: str) -> Column:
        dictionary = Dictionary() if self._type(name) is FieldType.STRING else None
        return Column(np.empty(0, dtype=DTYPES[self._type(name)]), None, dictionary)

    def _type(self, name: str) -> FieldType:
        field = self._schema.get(name)
        assert field is not None
        return field.type

    def take(self, name: str, rows: Ints) -> Column:
        """Return a column of the given rows; of a large version only the texts of these rows are loaded."""
        if self._file is None or self.rows < LARGE or self._type(name) is not FieldType.STRING:
            return self.column(name).take(rows)
        if name not in self._used:
            self._used[name] = UsedTexts(self._file.bare_column(name), self._file.texts(name))
        return self._used[name].take(rows)

    def index(self, names: tuple[str, ...]) -> VersionIndex:
        """Return the index by key columns, from its file if there is one."""
        return finished(self.indexing(names))

    def indexing(self, names: tuple[str, ...]) -> Steps[VersionIndex]:
        """Do the same in steps, since there may be no file."""
        found = None
        if self._file is not None:
            found = open_index(index_path(self._folder, self.number, names), self._file, names)
        if found is None:
            types = [self._type(name) for name in names]
            found = yield from building_index([self.column(name) for name in names], types, self.rows)
        return found

    def made(self, key: Hashable) -> object | None:
        """Return the object derived under a key, or None if it was not created yet."""
        return self._made.get(key)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the object derived from the version under a key; `make` creates it on first use."""
        if key not in self._made:
            self._made[key] = make()
        made: Made = self._made[key]  # type: ignore[assignment]
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of the columns that were used so far."""
        columns = sum(
            column.nbytes + (0 if column.dictionary is None else column.dictionary.nbytes)
            for column in self._columns.values()
        )
        return columns + sum(used.nbytes for used in self._used.values())


class StoredTable:
    """A table in its directory, which another process may be changing."""

    def __init__(self, path: Path) -> None:
        """Raises TableFilesError."""
        self.path = path
        self.description = TableDescription.load(path)
        self._changes = Changes(path)
        self._seen = -1
        self._names: dict[int, VersionName] = {}
        """The retained versions by number, the oldest first."""
        self._numbers: Ints = np.empty(0, dtype=np.int64)
        self._stamps: Ints = np.empty(0, dtype=np.int64)
        self._loaded: WeakValueDictionary[int, LoadedVersion] = WeakValueDictionary()
        self._no_version = LoadedVersion(NO_VERSION, None, self.description.schema, path)

    def refresh(self) -> bool:
        """Update the list of versions and return whether it changed; called after rows to join were read."""
        count = self._changes.count  # before the names: a version added in between is found next time
        if count == self._seen:
            return False
        self._names = {name.number: name for name in list_versions(self.path)}
        self._numbers = np.array(list(self._names), dtype=np.int64)
        self._stamps = np.array([name.stamp for name in self._names.values()], dtype=np.int64)
        self._seen = count
        return True

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the retained versions."""
        return frozenset(self._names)

    def span(self, arrivals: Ints) -> tuple[int, int]:
        """Return the numbers of the oldest and newest version that were current when rows arrived (ns)."""
        lowest = int(arrivals.min())
        if len(self._stamps) and lowest >= self._stamps[-1]:  # nearly always: rows that have just arrived
            newest = int(self._numbers[-1])
            return newest, newest
        oldest, newest = self.versions_at(np.array([lowest, arrivals.max()])).tolist()
        return oldest, newest

    def versions_at(self, arrivals: Ints) -> Ints:
        """Return the number of the version current at each arrival time (ns), NO_VERSION before the first."""
        if not len(self._numbers):
            return np.full(len(arrivals), NO_VERSION)
        found = np.searchsorted(self._stamps, arrivals, "right") - 1
        numbers = self._numbers.take(np.maximum(found, 0))
        # If older versions were removed as unneeded, only a clock that was set back yields an earlier row.
        if self._numbers[0] == 1:
            numbers[found < 0] = NO_VERSION
        return numbers

    def version(self, number: int) -> LoadedVersion:
        """Return the version with a number; raises TableFilesError."""
        if number == NO_VERSION:
            return self._no_version
        version = self._loaded.get(number)
        if version is None:
            file = VersionFile(self._names[number].within(self.path))
            version = self._loaded[number] = LoadedVersion(number, file, file.schema, self.path)
        return version


class OpenTables:
    """The tables in a directory, each opened once for all users."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: WeakValueDictionary[str, StoredTable] = WeakValueDictionary()

    def open(self, name: str) -> StoredTable:
        """Return a table; raises TableFilesError if there is none."""
        path, known = self._directory / name, self._open.get(name)
        # Another table may have got the name since.
        if known is not None and known.description.id == TableDescription.load(path).id:
            return known
        if not path.is_dir():
            raise TableFilesError(path, "there is no such table; put it first")
        table = self._open[name] = StoredTable(path)
        return table
