"""The stored tables of a server: put, describe, index and remove; versions become current atomically."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

from mavstream_protocol.instants import format_instant
from mavstream_protocol.schema import Schema
from mavstream_protocol.streams import field_specs
from mavstream_protocol.wire.resources import TableDetail, TableInfo, TableVersion
from mavstream_server.columns.column import Column
from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import Conflict, NotFound, TooMany, WrongVersion, listed, storage_problem
from mavstream_server.core.namespace import Namespace
from mavstream_server.core.settings import Settings
from mavstream_server.core.storage import failpoints
from mavstream_server.core.storage.damage import Damage, DamageReport
from mavstream_server.tables.directory import (
    Changes,
    TableDescription,
    VersionName,
    list_versions,
    sync_directories,
)
from mavstream_server.tables.errors import TableFilesError
from mavstream_server.tables.file import VersionFile, write_version
from mavstream_server.tables.index_file import Keys, remove_indexes, write_indexes

_LOG = logging.getLogger("mavstream.tables")
_NEW, _REMOVED, _DRAFT = ".new-", ".removed-", "draft"


class TableRows(NamedTuple):
    """The rows that a client sent, checked against their schema."""

    schema: Schema
    columns: Mapping[str, Column]
    rows: int


class StoredVersion(NamedTuple):
    """A version on disk."""

    name: VersionName
    rows: int
    nbytes: int
    digest: str


@dataclass(slots=True)
class Table:
    """A table and its stored versions, oldest first; there is always at least one."""

    path: Path
    description: TableDescription
    changes: Changes
    stored: list[StoredVersion] = field(default_factory=list)


class Joins(Protocol):
    """The queries that join tables."""

    def newest_row(self, table: str) -> int:
        """Return the last arrival time (ns) in the streams that queries join with a table.

        A new version is current only after it, so that it does not apply to rows that were joined already.
        """

    def joined_by(self, table: str) -> Collection[Keys]:
        """Return the key columns by which queries join a table.

        Large versions are indexed by them before they become current.
        """


class NoJoins:
    """A `Joins` without queries."""

    def newest_row(self, table: str) -> int:
        """Return 0: no row was joined."""
        return 0

    def joined_by(self, table: str) -> Collection[Keys]:
        """Return no keys: no index is needed."""
        return ()


class TableStore:
    """All tables of a server. Used in one event loop; files are written in threads."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        joins: Joins | None = None,
        damage: DamageReport | None = None,
        names: Namespace | None = None,
    ) -> None:
        """`joins` are the queries that join tables, by default none; `damage` collects unusable files."""
        self._names = Namespace() if names is None else names
        self._damage = damage or DamageReport()
        self._directory = settings.tables_directory
        self._most = settings.max_tables
        self._most_versions = settings.max_table_versions
        self._sync = settings.delivery == "sync"
        self._clock = clock
        self._joins = joins or NoJoins()
        self._changing = asyncio.Lock()
        self._tables: dict[str, Table] = {}
        self._schemas: dict[str, Schema] = {}
        self._open_all()

    def _open_all(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._directory.iterdir()):
            if path.name.startswith((_NEW, _REMOVED)):  # left by a process that died
                shutil.rmtree(path, ignore_errors=True)
            elif path.is_dir():
                try:
                    self._add(path)
                    self._names.add("table", path.name)
                except TableFilesError as error:
                    file = error.path if error.path != path else path / "table.json"
                    self._damage.add(Damage(file, 0, 0, 0, 0, f"table ignored: {error}"))

    def _add(self, path: Path) -> None:
        (path / _DRAFT).unlink(missing_ok=True)
        description = TableDescription.load(path)
        stored = [_read_version(path, name) for name in list_versions(path)]
        if not stored:
            raise TableFilesError(path, "the table has no version; remove the directory and put it again")
        numbers = {one.name.number for one in stored}
        remove_indexes(path, lambda number: number not in numbers)  # left by a process that died
        self._tables[path.name] = Table(path, description, Changes(path, create=True), stored)
        self._schemas[path.name] = description.schema

    def close(self) -> None:
        """Close the files; closing again does nothing."""
        for table in self._tables.values():
            table.changes.close()
        self._tables.clear()
        self._schemas.clear()

    # Reading

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tables, sorted."""
        return tuple(sorted(self._tables))

    def schemas(self) -> Mapping[str, Schema]:
        """Return the schema of each table, as a live view."""
        return self._schemas

    def versions(self, name: str) -> Sequence[VersionName]:
        """Return the retained versions of a table, oldest first; raises NotFound."""
        return [one.name for one in self._table(name).stored]

    def info(self, name: str) -> TableInfo:
        """Return the summary of a table; raises NotFound."""
        table = self._table(name)
        current = table.stored[-1]
        return TableInfo(
            name=name,
            fields=field_specs(table.description.schema),
            version=current.name.number,
            since=format_instant(current.name.stamp // 1000),
            rows=current.rows,
            bytes=sum(one.nbytes for one in table.stored),
            versions=len(table.stored),
        )

    def detail(self, name: str, used_by: Sequence[str]) -> TableDetail:
        """Return a table with its versions; raises NotFound."""
        stored = tuple(
            TableVersion(
                version=one.name.number,
                since=format_instant(one.name.stamp // 1000),
                rows=one.rows,
                bytes=one.nbytes,
            )
            for one in self._table(name).stored
        )
        return TableDetail(**self.info(name).model_dump(), kept=stored, used_by=tuple(used_by))

    def _table(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            raise NotFound.table(name, self._tables)
        return table

    # Changing

    async def put(self, name: str, given: TableRows, expected: int | None = None) -> tuple[TableInfo, bool]:
        """Make rows the current version of a new or existing table; return its summary and whether it is new.

        Idempotent: if the current version has the same rows, no version is created.
        Raises Conflict, WrongVersion, TooMany, StorageFull, StorageFailed.
        """
        async with self._changing:
            table = self._tables.get(name)
            self._check(name, table, given.schema, expected)
            folder = self._directory / f"{_NEW}{name}" if table is None else table.path
            if table is None:
                self._names.add("table", name)
            try:
                await asyncio.to_thread(self._draft, folder, table is None, given)
                new = _read_version(folder, None)
                if table is not None and new.digest == table.stored[-1].digest:
                    (folder / _DRAFT).unlink()
                    return self.info(name), False
                self._check_versions(name, table)
                number = 1 if table is None else table.stored[-1].name.number + 1
                keys = self._joins.joined_by(name)
                await asyncio.to_thread(write_indexes, folder, number, folder / _DRAFT, keys, self._sync)
                self._make_current(name, table, folder, new)
                if self._sync:
                    await asyncio.to_thread(sync_directories, (self._directory / name, self._directory))
            except OSError as error:
                raise storage_problem(f"table '{name}'", error) from error
            finally:
                if name not in self._tables:
                    self._names.remove("table", name)
            return self.info(name), table is None

    def _check(self, name: str, table: Table | None, schema: Schema, expected: int | None) -> None:
        version = 0 if table is None else table.stored[-1].name.number
        if expected is not None and expected != version:
            raise WrongVersion(f"table '{name}'", expected, version)
        if table is None:
            self._names.require_free("table", name)
            if len(self._tables) >= self._most:
                raise TooMany(
                    f"table '{name}' would be one more than the {self._most} that are allowed: "
                    "remove one, or raise MAVSTREAM_MAX_TABLES",
                    code="too_many_tables",
                )
            return
        if schema != table.description.schema:
            raise Conflict(
                f"table '{name}': expected the fields {_shown(table.description.schema)}, got "
                f"{_shown(schema)}: send the same fields, or remove the table first",
                code="other_fields",
            )

    def _check_versions(self, name: str, table: Table | None) -> None:
        if table is not None and len(table.stored) >= self._most_versions:
            raise TooMany(
                f"table '{name}' has {len(table.stored)} versions that rows in the streams may still need, "
                "which is the limit: reduce the retention of streams, or raise "
                "MAVSTREAM_MAX_TABLE_VERSIONS",
                code="too_many_versions",
            )

    def _draft(self, folder: Path, fresh: bool, given: TableRows) -> None:
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            TableDescription(secrets.token_hex(8), given.schema).save(folder, self._sync)
        write_version(folder / _DRAFT, given.columns, given.schema, given.rows, self._sync)

    async def index(self, name: str, keys: Keys, every: bool) -> None:
        """Index the current version of a table, or every retained one, by key columns.

        Called before a query starts to join the table; without an index the query would build it itself.
        """
        async with self._changing:
            table = self._tables.get(name)
            if table is None:
                return
            try:
                for version in [one.name for one in (table.stored if every else table.stored[-1:])]:
                    file = version.within(table.path)
                    await asyncio.to_thread(
                        write_indexes, table.path, version.number, file, [keys], self._sync
                    )
            except (OSError, TableFilesError) as error:  # a version may have been removed meanwhile
                _LOG.warning("table not indexed", extra={"table": name, "reason": str(error)})

    def _make_current(self, name: str, table: Table | None, folder: Path, new: StoredVersion) -> None:
        """Rename a draft to a version. Does not await, so no row gets an arrival time in between."""
        stored = [] if table is None else table.stored
        last = stored[-1].name if stored else VersionName(0, 0)
        stamp = max(self._clock.now(), last.stamp + 1, self._joins.newest_row(name) + 1)
        version = VersionName(last.number + 1, stamp)
        failpoints.hit("table.rename.before")
        (folder / _DRAFT).rename(version.within(folder))
        failpoints.hit("table.rename.after")
        if table is None:
            folder.rename(self._directory / name)
            self._add(self._directory / name)
        else:
            table.changes.add()
            stored.append(new._replace(name=version))
        _LOG.info("table put", extra={"table": name, "version": version.number, "rows": new.rows})

    async def remove(self, name: str, users: Callable[[], Sequence[str]]) -> None:
        """Remove a table with all its versions; raises NotFound, and Conflict while queries join it."""
        async with self._changing:
            table = self._table(name)
            if in_use := users():
                raise Conflict(
                    f"table '{name}' is joined by {listed(in_use)}: stop or remove these queries first",
                    code="table_in_use",
                )
            away = self._directory / f"{_REMOVED}{name}-{self._clock.now()}"
            try:
                table.path.rename(away)
            except OSError as error:
                raise storage_problem(f"the removal of table '{name}'", error) from error
            table.changes.close()
            del self._tables[name], self._schemas[name]
            self._names.remove("table", name)
            await asyncio.to_thread(shutil.rmtree, away, ignore_errors=True)

    def forget_before(self, name: str, arrival: int | None) -> int:
        """Remove the versions before the one current at an arrival time (ns), or all but the last if None."""
        table = self._table(name)
        removed = obsolete(self.versions(name), arrival)
        for version in removed:
            version.within(table.path).unlink(missing_ok=True)
        remove_indexes(table.path, lambda number: any(one.number == number for one in removed))
        del table.stored[: len(removed)]
        if removed:
            table.changes.add()
            _LOG.info("table versions removed", extra={"table": name, "versions": len(removed)})
        return len(removed)


def obsolete(versions: Sequence[VersionName], arrival: int | None) -> list[VersionName]:
    """Return the versions that were superseded at an arrival time (ns), or all but the last if None."""
    return [version for version, after in pairwise(versions) if arrival is None or after.stamp <= arrival]


def _read_version(path: Path, name: VersionName | None) -> StoredVersion:
    file = VersionFile(path / _DRAFT if name is None else name.within(path), verify=False)
    return StoredVersion(name or VersionName(0, 0), file.rows, file.nbytes, file.digest)


def _shown(schema: Schema) -> str:
    return "(" + ", ".join(f"{f.name} {f.type}{'?' if f.nullable else ''}" for f in schema) + ")"
