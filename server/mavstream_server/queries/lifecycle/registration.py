"""Registration: new queries get a name and a record and are started; requests may be repeated."""

from __future__ import annotations

from collections.abc import Callable

from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.wire.resources import QueryInfo
from mavstream_server.catalog.catalog import Catalog, QueryRecord
from mavstream_server.core.errors import Conflict, TooMany
from mavstream_server.core.principal import Principal
from mavstream_server.queries.admission_control import AdmissionControl
from mavstream_server.queries.chains import plan_streams, require_readable
from mavstream_server.queries.lifecycle.beginning import QueryBeginning
from mavstream_server.queries.lifecycle.entries import QueryEntries
from mavstream_server.queries.owner_quotas import OwnerQuotas
from mavstream_server.queries.planning.planner import QueryPlanner
from mavstream_server.queries.planning.work import Planned
from mavstream_server.queries.query import new_id
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.views.delivery import Durability
from mavstream_server.queries.views.metrics import describe
from mavstream_server.queries.views.queries import QueryViews

_SCOPE = "/v1/queries"


class QueryRegistration:
    """Registers queries, once for each idempotency key."""

    def __init__(
        self,
        max_queries: int,
        catalog: Catalog,
        registry: QueryRegistry,
        planner: QueryPlanner,
        quotas: OwnerQuotas,
        admission: AdmissionControl,
        entries: QueryEntries,
        beginning: QueryBeginning,
        views: QueryViews,
        durability: Durability,
        now_us: Callable[[], int],
    ) -> None:
        self._max_queries = max_queries
        self._catalog = catalog
        self._registry = registry
        self._planner = planner
        self._quotas = quotas
        self._admission = admission
        self._entries = entries
        self._beginning = beginning
        self._views = views
        self._durability = durability
        self._now_us = now_us

    async def register(self, data: object, key: str | None, principal: Principal) -> QueryInfo:
        """Register a query from its JSON form and start it; returns the one that the key registered before.

        Raises InvalidQuery, TooMany, Conflict, and Forbidden for classes and streams that are not allowed.
        """
        fingerprint = await self._planner.fingerprint(data) if key is not None else ""
        if (known := self._known(key, fingerprint, principal)) is not None:
            return await self._registered_before(known, key)
        await self._quotas.check_memory(principal)
        planned = await self._planner.plan(data)
        # Nothing waits from here until the query is in the catalog.
        if (known := self._known(key, fingerprint, principal)) is not None:
            return await self._registered_before(known, key)
        return await self.add(planned, principal, key, fingerprint)

    async def add(
        self, planned: Planned, principal: Principal, key: str | None = None, fingerprint: str = ""
    ) -> QueryInfo:
        """Register a query that was planned, and start it."""
        spec, plan, applicant = planned
        principal.require_class(spec.class_)
        for stream in plan_streams(plan, self._registry):
            principal.require_stream(stream)
        require_readable(plan, spec.from_, self._registry)
        if len(self._registry) >= self._max_queries:
            raise TooMany(
                f"{len(self._registry)} queries are registered, ended ones included, which is the limit: "
                "remove some with 'mavstream query delete'",
                code="too_many_queries",
            )
        self._quotas.check_count(principal)
        spec = self._named(spec)
        admission = None if applicant is None else self._admission.admit(applicant)
        query = self._entries.enter(self._record(spec, key, fingerprint, principal), plan, principal.name)
        if not query.scheduled:
            await self._beginning.begin(query)
        return describe(query, None, 0, self._durability).model_copy(update={"admission": admission})

    def _named(self, spec: QuerySpec) -> QuerySpec:
        """Return a new query's specification with a free name; raises Conflict if the given one is taken."""
        names = self._registry.names
        if "name" in spec.model_fields_set:
            names.require_free("query", spec.name)
            return spec
        return spec.model_copy(update={"name": names.free(spec.name)})

    def _record(
        self, spec: QuerySpec, key: str | None, fingerprint: str, principal: Principal
    ) -> QueryRecord:
        """Write a new query and its idempotency key to the catalog, atomically."""
        id_ = new_id(spec.name)
        while id_ in self._registry:
            id_ = new_id(spec.name)
        with self._catalog.transaction():
            record = self._catalog.add_query(id_, spec, self._now_us(), principal.name)
            if key is not None:
                self._catalog.remember(key, principal.scope(_SCOPE), fingerprint, id_)
        return record

    def _known(self, key: str | None, fingerprint: str, principal: Principal) -> str | None:
        """Return the query that was registered with an idempotency key; raises Conflict."""
        return None if key is None else self._catalog.idempotent(key, principal.scope(_SCOPE), fingerprint)

    async def _registered_before(self, id_: str, key: str | None) -> QueryInfo:
        if id_ not in self._registry:
            raise Conflict(
                f"idempotency key '{key}' registered query '{id_}', which was removed since: use a new key",
                code="idempotency_key_reused",
            )
        return await self._views.info(id_)
