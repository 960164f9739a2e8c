"""The catalog: streams, classes, queries and producers that survive a restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from mavstream_protocol.classes import DEFAULT_CLASS, QueryClass
from mavstream_protocol.optimizer import OptimizerSettings
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.wire.resources import DesiredState
from mavstream_protocol.wire.seams import Seam
from mavstream_server.catalog.database import Database
from mavstream_server.catalog.keyed_appends import AppendRecords
from mavstream_server.catalog.owners import Owners
from mavstream_server.catalog.producers import ProducerRegistry
from mavstream_server.catalog.runs import Runs
from mavstream_server.catalog.seen_fields import Seen, SeenFields
from mavstream_server.catalog.starts import QueryStarts
from mavstream_server.core.errors import Conflict, NotFound, Refused, WrongVersion

Spec = TypeVar("Spec", bound=BaseModel)

STORED_RESPONSES = 100_000
"""How many responses to requests with an idempotency key are stored; the oldest are removed first."""


class QueryRecord(NamedTuple):
    """A query as stored in the catalog."""

    id: str
    spec: QuerySpec
    desired: DesiredState
    final_state: str | None
    """`finished`, `stopped` or `failed`; None while it can still run."""
    reason: str | None
    epoch: int
    version: int
    """Grows with every change that clients can see; a new epoch alone is none."""
    created_us: int
    revision: int = 0
    """How often its plan was replaced."""


class ClassRecord(NamedTuple):
    """A class and its version."""

    spec: QueryClass
    version: int


class Catalog:
    """The stored streams, classes, queries, producers and settings of a server.

    Synchronous, in small transactions; used from one thread, and by one process at a time. Changes survive
    SIGKILL once the method has returned. Specifications are stored as the JSON that clients send.
    """

    def __init__(
        self,
        path: Path,
        *,
        sync: Literal["NORMAL", "FULL"] = "NORMAL",
        max_producers: int = 10_000,
        tables: Collection[str] = (),
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """`tables` are the names of the stored tables, which an upgrade does not give to queries."""
        self._database = Database(path, sync, tables)
        self._specs: dict[str, QuerySpec] = {}  # parsed once; as many as there are queries
        self.owners = Owners(self._database)
        self.appends = AppendRecords(self._database)
        self.seen_fields = SeenFields(self._database)
        self.runs = Runs(self._database)
        self.starts = QueryStarts(self._database)
        self.producers = ProducerRegistry(self._database, self.owners, max_producers, now_us)
        if not self._database.run("SELECT 1 FROM classes WHERE name = ?", DEFAULT_CLASS).fetchone():
            self.put_class(QueryClass(name=DEFAULT_CLASS))

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        self._database.close()

    @property
    def deleted(self) -> bool:
        """Whether the file was deleted or replaced since it was opened."""
        return self._database.deleted

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes or none; a nested transaction is part of the outer one."""
        try:
            with self._database.transaction():
                yield
        except BaseException:
            self._specs.clear()  # some may belong to changes that were rolled back
            raise

    def add_stream(self, spec: StreamSpec, owner: str | None = None) -> None:
        """Store a new stream and its owner; raises Conflict if there is one of that name."""
        with self.transaction():
            if self._database.run("SELECT 1 FROM streams WHERE name = ?", spec.name).fetchone():
                raise Conflict(
                    f"stream '{spec.name}' exists already: use it, or choose another name",
                    code="stream_exists",
                )
            self._database.run(
                "INSERT INTO streams VALUES (?, ?)", spec.name, spec.model_dump_json(by_alias=True)
            )
            self.owners.set("stream", spec.name, owner)

    def stream(self, name: str) -> StreamSpec:
        """Return a stream; raises NotFound."""
        row = self._database.run("SELECT spec FROM streams WHERE name = ?", name).fetchone()
        if row is None:
            raise NotFound.stream(name)
        return _parsed(StreamSpec, row[0])

    def streams(self, after: str = "", limit: int = -1) -> list[StreamSpec]:
        """Return the streams after the name `after`, by name; a negative limit means no limit."""
        rows = self._database.run(
            "SELECT spec FROM streams WHERE name > ? ORDER BY name LIMIT ?", after, limit
        )
        return [_parsed(StreamSpec, text) for (text,) in rows]

    def change_stream(self, spec: StreamSpec) -> None:
        """Store a changed stream; queries that there are do not see fields that it gets. Raises NotFound."""
        with self.transaction():
            known = len(self.stream(spec.name).fields)
            if known < len(spec.fields):
                self.seen_fields.limit(spec.name, known)
            text = spec.model_dump_json(by_alias=True)
            self._database.run("UPDATE streams SET spec = ? WHERE name = ?", text, spec.name)

    def remove_stream(self, name: str) -> None:
        """Remove a stream and the last sequences of its producers; raises NotFound."""
        with self.transaction():
            if not self._database.run("DELETE FROM streams WHERE name = ?", name).rowcount:
                raise NotFound.stream(name)
            self._database.run("DELETE FROM sequences WHERE stream = ?", name)
            self.owners.remove("stream", name)
            self.appends.remove_stream(name)
            self.seen_fields.remove_stream(name)

    def put_class(self, spec: QueryClass, expected_version: int | None = None) -> int:
        """Store a new or changed class and return its version; raises WrongVersion."""
        with self.transaction():
            row = self._database.run("SELECT version FROM classes WHERE name = ?", spec.name).fetchone()
            version = row[0] if row else 0
            _check(f"class '{spec.name}'", expected_version, version)
            text = spec.model_dump_json(by_alias=True)
            self._database.run(
                "INSERT OR REPLACE INTO classes VALUES (?, ?, ?)", spec.name, text, version + 1
            )
        return version + 1

    def class_(self, name: str) -> ClassRecord:
        """Return a class; raises NotFound."""
        row = self._database.run("SELECT spec, version FROM classes WHERE name = ?", name).fetchone()
        if row is None:
            raise NotFound.class_(name, (record.spec.name for record in self.classes()))
        return ClassRecord(_parsed(QueryClass, row[0]), row[1])

    def remove_class(self, name: str, expected_version: int | None = None) -> None:
        """Remove a class; raises NotFound, WrongVersion."""
        with self.transaction():
            _check(f"class '{name}'", expected_version, self.class_(name).version)
            self._database.run("DELETE FROM classes WHERE name = ?", name)

    def classes(self) -> list[ClassRecord]:
        """Return all classes, by name; the default class always exists."""
        rows = self._database.run("SELECT spec, version FROM classes ORDER BY name")
        return [ClassRecord(_parsed(QueryClass, text), version) for text, version in rows]

    def add_query(self, id_: str, spec: QuerySpec, created_us: int, owner: str | None = None) -> QueryRecord:
        """Store a new query with the desired state `running`; raises Conflict if the id is in use."""
        with self.transaction():
            if self._database.run("SELECT 1 FROM queries WHERE id = ?", id_).fetchone():
                raise Conflict(
                    f"query '{id_}' exists already: choose another name, or remove that query first",
                    code="query_exists",
                )
            text = spec.model_dump_json(by_alias=True)
            self._database.run(
                "INSERT INTO queries VALUES (?, ?, ?, NULL, NULL, 0, 1, ?, 0)",
                *(id_, text, DesiredState.RUNNING, created_us),
            )
            self.owners.set("query", id_, owner)
        self._specs[id_] = spec
        return QueryRecord(id_, spec, DesiredState.RUNNING, None, None, 0, 1, created_us)

    def query(self, id_: str) -> QueryRecord:
        """Return a query; raises NotFound."""
        row = self._database.run("SELECT * FROM queries WHERE id = ?", id_).fetchone()
        if row is None:
            raise NotFound.query(id_)
        return self._record(row)

    def queries(self, after: str = "", limit: int = -1, state: str | None = None) -> list[QueryRecord]:
        """Return the queries after the id `after`, by id; a negative limit means no limit.

        `state` is a final state, or the desired state of queries that can still run.
        """
        rows = self._database.run(
            "SELECT * FROM queries WHERE id > ?1 AND (?3 IS NULL OR coalesce(final_state, desired) = ?3) "
            "ORDER BY id LIMIT ?2",
            *(after, limit, state),
        )
        return [self._record(row) for row in rows.fetchall()]

    def count_queries(self) -> int:
        """Return how many queries there are."""
        count: int = self._database.run("SELECT count(*) FROM queries").fetchone()[0]
        return count

    def set_desired(
        self, id_: str, desired: DesiredState, expected_version: int | None = None
    ) -> QueryRecord:
        """Store the state that a client wants a query to have; raises NotFound, WrongVersion."""
        return self._change(id_, expected_version, desired=desired)

    def set_spec(self, id_: str, spec: QuerySpec, expected_version: int | None = None) -> QueryRecord:
        """Keep a changed specification; raises NotFound, WrongVersion."""
        record = self._change(id_, expected_version, spec=spec.model_dump_json(by_alias=True))
        self._specs[id_] = spec
        return record._replace(spec=spec)

    def set_final(self, id_: str, state: str, reason: str | None = None) -> QueryRecord:
        """Store how a query ended; raises NotFound."""
        return self._change(id_, None, final_state=state, reason=reason)

    def reopen(self, id_: str, expected_version: int | None = None) -> QueryRecord:
        """Let an ended query run again; raises NotFound, WrongVersion."""
        running = DesiredState.RUNNING.value
        return self._change(id_, expected_version, final_state=None, reason=None, desired=running)

    def next_epoch(self, id_: str) -> int:
        """Increment and return a query's epoch, from 1; raises NotFound."""
        row = self._database.run(
            "UPDATE queries SET epoch = epoch + 1 WHERE id = ? RETURNING epoch", id_
        ).fetchall()
        if not row:
            raise NotFound.query(id_)
        epoch: int = row[0][0]
        return epoch

    def remove_query(self, id_: str) -> None:
        """Remove a query; raises NotFound."""
        with self.transaction():
            self.seen_fields.remove_results(id_)
            if not self._database.run("DELETE FROM queries WHERE id = ?", id_).rowcount:
                raise NotFound.query(id_)
            self.owners.remove("query", id_)
            self.drop_replacement(id_)
            self.seen_fields.remove_query(id_)
            self.runs.remove(id_)
            self.starts.remove(id_)
            self._database.run("DELETE FROM seams WHERE query = ?", id_)
        self._specs.pop(id_, None)

    def rewrite(
        self, id_: str, spec: QuerySpec, seen: Mapping[str, Seen], expected_version: int | None = None
    ) -> QueryRecord:
        """Store another specification of a query that has not begun; raises NotFound, WrongVersion."""
        with self.transaction():
            self.begin_replacement(id_, spec, seen, expected_version)
            return self.complete_replacement(id_, spec)

    def begin_replacement(
        self, id_: str, spec: QuerySpec, seen: Mapping[str, Seen], expected_version: int | None = None
    ) -> None:
        """Store the specification that replaces that of a query once its engine says so.

        `seen` are the fields that it sees of what it reads. Raises NotFound, WrongVersion.
        """
        with self.transaction():
            _check(f"query '{id_}'", expected_version, self.query(id_).version)
            text = spec.model_dump_json(by_alias=True)
            self._database.run("INSERT OR REPLACE INTO replacements VALUES (?, ?)", id_, text)
            self.seen_fields.begin_replacement(id_, seen)

    def replacement(self, id_: str) -> QuerySpec | None:
        """Return the specification that is to replace that of a query, or None."""
        row = self._database.run("SELECT spec FROM replacements WHERE query = ?", id_).fetchone()
        return None if row is None else _parsed(QuerySpec, row[0])

    def drop_replacement(self, id_: str) -> None:
        """Forget a replacement that was given up; does nothing without one."""
        with self.transaction():
            self._database.run("DELETE FROM replacements WHERE query = ?", id_)
            self.seen_fields.drop_replacement(id_)

    def complete_replacement(self, id_: str, spec: QuerySpec, seam: Seam | None = None) -> QueryRecord:
        """Store the replaced specification of a query, whose plan runs since a seam; raises NotFound."""
        with self.transaction():
            self.set_spec(id_, spec)
            self._database.run("UPDATE queries SET revision = revision + 1 WHERE id = ?", id_)
            if seam is not None:
                text = seam.model_dump_json()
                self._database.run("INSERT OR REPLACE INTO seams VALUES (?, ?, ?)", id_, seam.revision, text)
            self.seen_fields.complete_replacement(id_)
            self.drop_replacement(id_)
            return self.query(id_)

    def seams(self) -> Iterator[tuple[str, Seam]]:
        """Yield the seams of all queries, with their ids."""
        for id_, text in self._database.run("SELECT query, seam FROM seams ORDER BY query, revision"):
            yield id_, _parsed(Seam, text)

    def _change(self, id_: str, expected_version: int | None, **values: str | None) -> QueryRecord:
        with self.transaction():
            _check(f"query '{id_}'", expected_version, self.query(id_).version)
            columns = ", ".join(f"{name} = ?" for name in values)
            self._database.run(
                f"UPDATE queries SET {columns}, version = version + 1 WHERE id = ?", *values.values(), id_
            )
            return self.query(id_)

    def _record(self, row: tuple[Any, ...]) -> QueryRecord:
        id_, text, desired, *rest = row
        spec = self._specs.get(id_)
        if spec is None:
            spec = self._specs[id_] = _parsed(QuerySpec, text)
        return QueryRecord(id_, spec, DesiredState(desired), *rest)

    def sequences(self, stream: str) -> dict[int, int]:
        """Return the last stored sequence of each producer of a stream."""
        return dict(
            self._database.run("SELECT producer, last FROM sequences WHERE stream = ?", stream).fetchall()
        )

    def save_sequences(self, stream: str, lasts: Mapping[int, int]) -> None:
        """Store the last sequences of producers of a stream; stored sequences never decrease."""
        with self.transaction():
            self._database.run_many(
                "INSERT INTO sequences VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET last = max(last, excluded.last)",
                [(stream, producer, last) for producer, last in lasts.items()],
            )

    def scheduler(self) -> SchedulerSettings | None:
        """Return the policy that was chosen last, or None if none ever was."""
        row = self._database.run("SELECT value FROM settings WHERE name = 'scheduler'").fetchone()
        return _parsed(SchedulerSettings, row[0]) if row else None

    def set_scheduler(self, chosen: SchedulerSettings) -> None:
        """Store the chosen policy."""
        self._database.run(
            "INSERT OR REPLACE INTO settings VALUES ('scheduler', ?)", chosen.model_dump_json()
        )

    def optimizer(self) -> OptimizerSettings:
        """Return the settings of the optimizer."""
        row = self._database.run("SELECT value FROM settings WHERE name = 'optimizer'").fetchone()
        return _parsed(OptimizerSettings, row[0]) if row else OptimizerSettings()

    def set_optimizer(self, settings: OptimizerSettings) -> None:
        """Store the settings of the optimizer."""
        self._database.run(
            "INSERT OR REPLACE INTO settings VALUES ('optimizer', ?)", settings.model_dump_json()
        )

    def idempotent(self, key: str, scope: str, fingerprint: str | None = None) -> str | None:
        """Return the stored response to the request with an idempotency key, or None if there is none.

        Raises Conflict if the key was used for a request with another fingerprint.
        """
        row = self._database.run(
            "SELECT fingerprint, response FROM answers WHERE scope = ? AND key = ?", scope, key
        ).fetchone()
        if row is None:
            return None
        if fingerprint is not None and fingerprint != row[0]:
            raise Conflict(
                f"idempotency key '{key}' was used for another request to {scope}: use a new key for each",
                code="idempotency_key_reused",
            )
        response: str = row[1]
        return response

    def remember(self, key: str, scope: str, fingerprint: str, response: str) -> None:
        """Store the response to a request, in the same transaction as the object that the request created."""
        with self.transaction():
            last = self._database.run(
                "INSERT OR REPLACE INTO answers (scope, key, fingerprint, response) VALUES (?, ?, ?, ?)",
                *(scope, key, fingerprint, response),
            ).lastrowid
            self._database.run("DELETE FROM answers WHERE number <= ?", (last or 0) - STORED_RESPONSES)


def _parsed(kind: type[Spec], text: str) -> Spec:
    """Parse a stored specification; raises Refused if it is garbled."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise Refused(
            f"catalog: expected a {kind.__name__}, got {text[:100]!r} ({error.error_count()} errors): the "
            "file is damaged or was changed by another program; restore it from a backup",
            code="garbled_catalog",
        ) from error


def _check(what: str, expected: int | None, current: int) -> None:
    if expected is not None and expected != current:
        raise WrongVersion(what, expected, current)
