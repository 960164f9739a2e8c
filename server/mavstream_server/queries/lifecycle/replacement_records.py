"""Records of replacements: begun in the catalog, decided by the checkpoint of the engine, then completed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.catalog.catalog import Catalog, QueryRecord
from mavstream_server.engine.checkpoints.store import CheckpointStore
from mavstream_server.queries.chains import plan_origins
from mavstream_server.queries.planning.query_size import is_large
from mavstream_server.queries.planning.seen_shapes import fields_seen
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.stream_readers import StreamReaders


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
        type_plan: Callable[[QuerySpec, Mapping[str, int]], Awaitable[TypedPlan]],
    ) -> None:
        """`type_plan` types the plan of a specification that sees so many fields of each stream."""
        self._catalog = catalog
        self._registry = registry
        self._readers = readers
        self._checkpoints = checkpoints
        self._type_plan = type_plan

    async def type_plan(self, query: Query, plan: Plan) -> TypedPlan:
        """Type a plan that a query was migrated to."""
        spec = query.record.spec.model_copy(update={"plan": plan})
        return await self._type_plan(spec, self._catalog.seen_fields.of(query.id))

    def begin(self, query: Query, spec: QuerySpec, plan: TypedPlan, version: int | None) -> None:
        """Store a specification whose plan the engine gets next; raises WrongVersion."""
        self._catalog.begin_replacement(query.id, spec, fields_seen(plan), version)

    def drop(self, query: Query) -> None:
        """Forget a replacement that the engine has refused."""
        self._catalog.drop_replacement(query.id)

    def complete(self, query: Query, spec: QuerySpec, plan: TypedPlan) -> None:
        """Let a specification replace that of a query."""
        self._adopt(query, self._catalog.complete_replacement(query.id, spec), plan)

    def rewrite(self, query: Query, spec: QuerySpec, plan: TypedPlan, version: int | None) -> None:
        """Let a specification replace that of a query that has not begun; raises WrongVersion."""
        self._adopt(query, self._catalog.rewrite(query.id, spec, fields_seen(plan), version), plan)

    def _adopt(self, query: Query, record: QueryRecord, plan: TypedPlan) -> None:
        """Let a query have another record and plan, and those that read it what follows from these."""
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
        if self._took_effect(query):
            seen = self._catalog.seen_fields.of(query.id, replacement=True)
            self.complete(query, spec, await self._type_plan(spec, seen))
        else:
            self.drop(query)

    def _took_effect(self, query: Query) -> bool:
        stored = self._checkpoints.stored(query.id)
        return bool(stored) and stored[0].header.revision > query.revision
