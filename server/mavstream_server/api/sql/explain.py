"""EXPLAIN: the plan of a query as a tree, the admission answer, what would be shared, and backends."""

from __future__ import annotations

from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.streams import field_specs
from mavstream_protocol.wire.sql import Explained
from mavstream_server.api.services import Services
from mavstream_server.queries.planning.validation import backends_of
from mavstream_server.queries.views.plan_tree import plan_tree
from mavstream_server.queries.views.sharing_preview import shared_operators


async def explain(plan: Plan, parts: Services) -> Explained:
    """Explain a plan over the server's streams and tables; raises InvalidQuery, TooMany, NotReady."""
    found = await parts.queries.planner.explain(plan)
    estimate = None if found.applicant is None else parts.queries.admission.estimate(found.applicant)
    return Explained(
        kind="explained",
        tree=plan_tree(plan, found.assessment),
        assumed_rate=found.assumed_rate,
        plan=plan,
        fields=field_specs(found.plan.schema),
        admission=estimate,
        shared=await shared_operators(found.spec, found.plan, parts.queries.registry, parts.settings.sharing),
        backends=backends_of(found.plan),
    )
