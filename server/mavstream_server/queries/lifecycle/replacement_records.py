"""Records of replacements: begun in the catalog, decided by the checkpoint of the engine, then completed."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol

from mavstream_protocol.errors import InvalidObject
from mavstream_protocol.instants import FIRST_INSTANT, LAST_INSTANT, format_instant
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_protocol.wire.seams import NotRetained, Seam
from mavstream_server.catalog.catalog import Catalog, QueryRecord
from mavstream_server.catalog.seen_fields import Seen
from mavstream_server.core.errors import Conflict
from mavstream_server.engine.checkpoints.store import CheckpointStore
from mavstream_server.queries.chains import plan_origins, same_answers
from mavstream_server.queries.planning.query_size import is_large
from mavstream_server.queries.planning.seen_shapes import fields_seen
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.stream_readers import StreamReaders

Readers = list[tuple[Query, TypedPlan]]
"""Those that read a query, with the plans that they have from then on."""


class TypePlan(Protocol):
    """Types the plan of a registered query, as `QueryPlanner.type_plan` does."""

    def __call__(
        self, spec: QuerySpec, seen: Mapping[str, Seen] | None, changed: Mapping[str, StreamShape] = ...
    ) -> Awaitable[TypedPlan]:
        """Return the typed plan."""


class ReplacementRecords:
    """Completes replacements in the catalog and the registry, those that a crash has interrupted included.

    A specification is stored before the engine gets its plan, and becomes the query's when a checkpoint has
    the plan. Whichever process dies in between, the checkpoint says which plan has answered which rows.
    """

    def __init__(
        self,
        catalog: Catalog,
        registry: QueryRegistry,
        readers: StreamReaders,
        checkpoints: CheckpointStore,
        type_plan: TypePlan,
    ) -> None:
        """`type_plan` types the plan of a specification that sees these fields of what it reads."""
        self._catalog = catalog
        self._registry = registry
        self._readers = readers
        self._checkpoints = checkpoints
        self._type_plan = type_plan

    async def type_plan(self, query: Query, plan: Plan) -> TypedPlan:
        """Type a plan that a query was migrated to."""
        spec = query.record.spec.model_copy(update={"plan": plan})
        return await self._type_plan(spec, self._catalog.seen_fields.of(query.id))

    async def readers_with(self, query: Query, results: StreamShape) -> Readers:
        """Return those that read a query, with their plans as they are when it has other results.

        Raises Conflict if one of them would not answer as before.
        """
        if results == self._registry.results.get(query.name):
            return []
        found: Readers = []
        for reader in self._registry.readers(query.id):
            if reader.plan is None:
                continue
            seen = {**self._catalog.seen_fields.of(reader.id)}
            for source in reader.plan.sources:
                if source.query == query.id:
                    seen.setdefault(source.stream, source.schema.names)
            try:
                plan = await self._type_plan(reader.record.spec, seen, {query.name: results})
                why = "" if same_answers(reader.plan, plan) else "it would answer otherwise"
            except InvalidObject as error:
                plan, why = reader.plan, error.items[0].detail
            if why:
                raise Conflict(
                    f"the results of query '{query.name}' are read by '{reader.id}', which does not fit the "
                    f"new columns ({why}): keep them, replace the reader first, or remove it",
                    code="query_in_use",
                )
            found.append((reader, plan))
        return found

    def begin(self, query: Query, spec: QuerySpec, plan: TypedPlan, version: int | None) -> None:
        """Store a specification whose plan the engine gets next; raises WrongVersion."""
        self._catalog.begin_replacement(query.id, spec, fields_seen(plan), version)

    def drop(self, query: Query) -> None:
        """Forget a replacement that the engine has refused."""
        self._catalog.drop_replacement(query.id)

    def complete(
        self, query: Query, spec: QuerySpec, plan: TypedPlan, readers: Readers, seam: Seam | None
    ) -> None:
        """Let a specification replace that of a query; those that read it get these plans."""
        with self._catalog.transaction():
            self._keep_columns(query, readers)
            record = self._catalog.complete_replacement(query.id, spec, seam)
        self._adopt(query, record, plan, readers)

    def rewrite(
        self, query: Query, spec: QuerySpec, plan: TypedPlan, readers: Readers, version: int | None
    ) -> None:
        """Let a specification replace that of a query that has not begun; raises WrongVersion."""
        with self._catalog.transaction():
            self._keep_columns(query, readers)
            record = self._catalog.rewrite(query.id, spec, fields_seen(plan), version)
        self._adopt(query, record, plan, readers)

    def _keep_columns(self, query: Query, readers: Readers) -> None:
        """Let those that read a query see no other columns of its results than they have seen so far."""
        for reader, _ in readers:
            for source in () if reader.plan is None else reader.plan.sources:
                if source.query == query.id:
                    names = source.schema.names
                    self._catalog.seen_fields.keep_columns(reader.id, source.stream, names)

    def _adopt(self, query: Query, record: QueryRecord, plan: TypedPlan, readers: Readers) -> None:
        """Let a query have another record and plan, and those that read it what follows from these."""
        for reader, as_it_is_then in readers:
            reader.plan = as_it_is_then
        self._readers.remove(query)
        self._registry.part(query)
        query.record, query.plan, query.large = record, plan, is_large(record.spec.plan)
        query.beyond = frozenset()
        query.beyond = plan_origins(plan, self._registry) - query.origins
        self._readers.add(query)
        self._registry.note(query)
        above = self._registry.readers(query.id)
        while above:
            reader = above.pop()
            if reader.plan is None:
                continue
            before, reader.beyond = reader.origins, frozenset()
            reader.beyond = plan_origins(reader.plan, self._registry) - reader.origins
            if reader.origins != before:
                self._readers.follow(reader, before)
                above += self._registry.readers(reader.id)

    async def settle(self, query: Query) -> None:
        """Complete or forget a replacement whose outcome is not known, before the query starts again."""
        spec = self._catalog.replacement(query.id)
        if spec is None:
            return
        stored = self._checkpoints.stored(query.id)
        if not stored or stored[0].header.revision <= query.revision:
            self.drop(query)
            return
        header, seen = stored[0].header, self._catalog.seen_fields.of(query.id, replacement=True)
        seam = None if header.seam is None else seam_of(header.revision, *header.seam)
        if seam is not None:
            query.seams[seam.revision] = seam
        plan = await self._type_plan(spec, seen)
        readers = await self.readers_with(query, plan.results(query.id, derived=spec.derive))
        self.complete(query, spec, plan, readers, seam)


def seam_of(revision: int, offset: int, lacking: Mapping[str, tuple[int, int]]) -> Seam:
    """Return a seam in its API form; `lacking` are first position and latest time (us), by stream."""
    missing = tuple(
        NotRetained(stream=stream, first=first, until=_time(until))
        for stream, (first, until) in lacking.items()
    )
    return Seam(revision=revision, offset=offset, not_retained=missing)


def _time(until: int) -> str | None:
    return None if until < FIRST_INSTANT else format_instant(min(until, LAST_INSTANT))
