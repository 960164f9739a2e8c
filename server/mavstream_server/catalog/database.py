"""The SQLite file of the catalog: opening, schema versions and transactions."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from mavstream_server.catalog.unique_names import make_names_unique
from mavstream_server.core.errors import Refused, StorageFailed, StorageFull
from mavstream_server.core.storage import failpoints

VERSION = 8
_SQLITE = b"SQLite format 3\0"
_APPLICATION = 0x4D765374  # "MvSt": distinguishes catalogs from SQLite files of other programs

_SCHEMA = """
CREATE TABLE streams (name TEXT PRIMARY KEY, spec TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE classes (name TEXT PRIMARY KEY, spec TEXT NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE queries (
    id TEXT PRIMARY KEY, spec TEXT NOT NULL, desired TEXT NOT NULL, final_state TEXT, reason TEXT,
    epoch INTEGER NOT NULL, version INTEGER NOT NULL, created_us INTEGER NOT NULL
);
CREATE TABLE producers (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE sequences (
    stream TEXT NOT NULL, producer INTEGER NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (stream, producer)
) WITHOUT ROWID;
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE answers (
    number INTEGER PRIMARY KEY, scope TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL,
    response TEXT NOT NULL, UNIQUE (scope, key)
);
"""

_ACCESS = """
CREATE TABLE owners (
    kind TEXT NOT NULL, name TEXT NOT NULL, owner TEXT NOT NULL, PRIMARY KEY (kind, name)
) WITHOUT ROWID;
ALTER TABLE producers ADD COLUMN used_us INTEGER NOT NULL DEFAULT 0;
CREATE TABLE appends (
    stream TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, stamp INTEGER NOT NULL,
    begun INTEGER NOT NULL, rows INTEGER NOT NULL, position INTEGER, at_us INTEGER NOT NULL,
    PRIMARY KEY (stream, key)
) WITHOUT ROWID;
CREATE INDEX appends_by_time ON appends (at_us);
"""

# Damaged specifications have no name, and are reported when they are read.
_NAMES = """
CREATE UNIQUE INDEX queries_by_name ON queries (
    CASE WHEN json_valid(spec) THEN json_extract(spec, '$.name') END
);
"""

_REPLACEMENTS = """
ALTER TABLE queries ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
CREATE TABLE replacements (query TEXT PRIMARY KEY, spec TEXT NOT NULL) WITHOUT ROWID;
"""

_SEEN_FIELDS = """
CREATE TABLE seen_fields (
    query TEXT NOT NULL, replacement INTEGER NOT NULL, stream TEXT NOT NULL, fields INTEGER NOT NULL,
    PRIMARY KEY (query, replacement, stream)
) WITHOUT ROWID;
"""

# Specifications have a `backend` from here on, which earlier releases do not know.
_RUNS = """
CREATE TABLE runs (query TEXT PRIMARY KEY, last TEXT NOT NULL, before TEXT) WITHOUT ROWID;
"""

# Until then an epoch, which is counted before an engine gets a query, said that one has run it.
_STARTS = """
CREATE TABLE starts (query TEXT PRIMARY KEY, begun INTEGER NOT NULL, resumes TEXT) WITHOUT ROWID;
INSERT INTO starts SELECT id, 1, NULL FROM queries WHERE epoch > 0;
"""

_SEAMS = """
CREATE TABLE seams (
    query TEXT NOT NULL, revision INTEGER NOT NULL, seam TEXT NOT NULL, PRIMARY KEY (query, revision)
) WITHOUT ROWID;
ALTER TABLE seen_fields ADD COLUMN names TEXT;
"""

_Step = Callable[[sqlite3.Connection, Collection[str]], None]

# The entry at index n migrates a file from version n to n + 1: a step, which gets the names of the tables,
# and then a script.
_MIGRATIONS: tuple[tuple[_Step | None, str], ...] = (
    (None, _SCHEMA),
    (None, _ACCESS),
    (make_names_unique, _NAMES),
    (None, _REPLACEMENTS),
    (None, _SEEN_FIELDS),
    (None, _RUNS),
    (None, _STARTS),
    (None, _SEAMS),
)


class Database:
    """An SQLite file in WAL mode. Not thread-safe.

    `sync` FULL waits for the disk at every commit (260 commits/s measured); NORMAL does not (26,000/s). A
    commit with NORMAL survives the death of the process, because the operating system has the write-ahead log
    by then. Only power loss can lose the last commits, and the file stays consistent.
    """

    def __init__(
        self, path: Path, sync: Literal["NORMAL", "FULL"] = "NORMAL", tables: Collection[str] = ()
    ) -> None:
        """`tables` are the names of the stored tables, which an upgrade does not give to queries."""
        self.path = path
        self._depth = 0
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives its other files the mode of this one.
        fresh = not path.exists()
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._file = path.stat().st_ino
        if not fresh:
            _check_header(path)
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=1.0)
        except sqlite3.Error as error:
            raise StorageFailed(
                f"catalog '{path}' cannot be opened ({error}): check the directory"
            ) from error
        try:
            self._open(sync, tables)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if isinstance(error, sqlite3.OperationalError):
                raise self._storage_error(error) from error
            raise _garbled(path, str(error)) from error
        except BaseException:
            self._connection.close()
            raise

    def _open(self, sync: str, tables: Collection[str]) -> None:
        run = self._connection.execute
        (application,) = run("PRAGMA application_id").fetchone()
        (version,) = run("PRAGMA user_version").fetchone()
        (found,) = run("SELECT count(*) FROM sqlite_schema").fetchone()
        if (found or application) and application != _APPLICATION:
            raise Refused(
                f"catalog '{self.path}' belongs to another program: choose another data directory",
                code="foreign_catalog",
            )
        if version > VERSION:
            raise Refused(
                f"catalog '{self.path}': expected version {VERSION} or earlier, got {version}: "
                "use the release that wrote it, or a later one",
                code="newer_catalog",
            )
        (damage,) = run("PRAGMA quick_check(1)").fetchone()
        if damage != "ok":
            raise _garbled(self.path, damage)
        run("PRAGMA journal_mode = WAL")
        run(f"PRAGMA synchronous = {sync}")
        for old in range(version, VERSION):
            # One transaction: if the process dies, the file keeps the version before.
            step, script = _MIGRATIONS[old]
            run("BEGIN IMMEDIATE")
            if step is not None:
                step(self._connection, tables)
            for statement in script.split(";"):
                run(statement)
            run(f"PRAGMA application_id = {_APPLICATION}")
            run(f"PRAGMA user_version = {old + 1}")
            run("COMMIT")

    @property
    def deleted(self) -> bool:
        """Whether the file was deleted or replaced since it was opened."""
        try:
            return self.path.stat().st_ino != self._file
        except OSError:
            return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes or none; a nested transaction is part of the outer one."""
        if self._depth == 0:
            self.run("BEGIN IMMEDIATE")
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            if self._depth == 0 and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._depth -= 1
        if self._depth == 0:
            try:
                failpoints.hit("catalog.commit.before")
                self.run("COMMIT")
                failpoints.hit("catalog.commit.after")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def run(self, sql: str, *values: object) -> sqlite3.Cursor:
        """Execute a statement; raises StorageFull, StorageFailed."""
        try:
            return self._connection.execute(sql, values)
        except sqlite3.OperationalError as error:
            raise self._storage_error(error) from error
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.IntegrityError):
                raise
            raise StorageFailed(
                f"catalog '{self.path}' is damaged ({error}): stop the server and run 'mavstream check'"
            ) from error

    def run_many(self, sql: str, rows: list[tuple[object, ...]]) -> None:
        """Execute a statement for each row; raises StorageFull, StorageFailed."""
        try:
            self._connection.executemany(sql, rows)
        except sqlite3.OperationalError as error:
            raise self._storage_error(error) from error

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        self._connection.close()

    def _storage_error(self, error: sqlite3.OperationalError) -> StorageFull | StorageFailed:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return StorageFull(
                f"catalog '{self.path}' cannot grow, the disk is full: free space and try again"
            )
        return StorageFailed(
            f"catalog '{self.path}' cannot be used ({error}): check whether another process has it open"
        )


def _check_header(path: Path) -> None:
    """Raise Refused if an existing file is not an SQLite file: an empty one would be taken for a new one.

    Beside empty directories it is a new one, left by a process that died at its first start.
    """
    with path.open("rb") as stream:
        start = stream.read(len(_SQLITE))
    if not start and not any(any(one.iterdir()) for one in path.parent.iterdir() if one.is_dir()):
        return
    if start != _SQLITE:
        raise _garbled(path, "it is empty" if not start else f"it begins with {start!r}")


def _garbled(path: Path, reason: str) -> Refused:
    return Refused(
        f"catalog '{path}' is not an intact SQLite file ({reason}): restore it from a backup; if there is "
        "none, move it away to start with an empty catalog; rows stay in their files and belong to no stream",
        code="foreign_catalog",
    )
