"""The work of planning one query, on the event loop or in a process of its own.

The process imports this module and what it needs, and nothing of the server that owns it: what is imported
here is what the process takes of time to start, and of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mavstream_protocol.errors import InvalidObject
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.schema import Schema
from mavstream_protocol.sql import Catalog, Statement, named_sources, parse_statement, plan_to_sql
from mavstream_protocol.sql import split_statements as split
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_protocol.wire.resources import Validation
from mavstream_server.optimizer.admission.cost_history import CostHistory
from mavstream_server.optimizer.admission.load import Arrivals
from mavstream_server.planning.rewriting.costing.model import Assessment
from mavstream_server.queries.planning import validation
from mavstream_server.queries.planning.applicant import Applicant, applicant_of
from mavstream_server.queries.planning.json_body import parsed

_ASSUMED = Arrivals(rows=1000.0, frames=10.0)
"""What is assumed of streams without rows, so that operators can be compared."""


class Planned(NamedTuple):
    """A query that can be registered."""

    spec: QuerySpec
    plan: TypedPlan
    applicant: Applicant | None
    """What admission control estimates; None if it is off."""


class Job(NamedTuple):
    """A query to be planned, and what its plan depends on."""

    data: object
    alone: bool
    """Whether a plan may stand for a query."""
    streams: Mapping[str, StreamShape]
    tables: Mapping[str, Schema]
    has_class: Callable[[str], bool]
    costs: CostHistory | None
    """None if there is no admission control."""
    rates: Mapping[str, Arrivals]


def plan(job: Job) -> Planned:
    """Check, type and assess a query; raises InvalidQuery."""
    data = parsed(job.data)
    spec, typed = validation.plan_query(data, job.streams, job.has_class, job.tables, alone=job.alone)
    return Planned(spec, typed, applicant_of(spec, typed, job.costs, job.rates))


class Explanation(NamedTuple):
    """A query with what its operators are expected to do."""

    spec: QuerySpec
    plan: TypedPlan
    applicant: Applicant | None
    assessment: Assessment
    assumed_rate: float | None
    """Rows per second that were assumed of each stream, since none arrive now."""


def explain(job: Job) -> Explanation:
    """Check, type and assess a query and its operators; raises InvalidQuery."""
    spec, typed, applicant = plan(job)
    arrivals, assumed = job.rates, None
    if not any(one.rows for one in arrivals.values()):
        assumed = _ASSUMED.rows
        arrivals = {source.stream: _ASSUMED for source in typed.sources}
    assessment = (job.costs or CostHistory()).operators(typed, arrivals)
    return Explanation(spec, typed, applicant, assessment, assumed)


def check(job: Job) -> tuple[bytes, Applicant | None]:
    """Return the validation as JSON without an estimate, and what the estimate depends on."""
    data = parsed(job.data)
    try:
        spec, typed, applicant = plan(job._replace(data=data))
    except InvalidObject as error:
        found, applicant = Validation(valid=False, errors=error.items), None
    else:
        found = validation.described(typed)
        if isinstance(data, Mapping) and "sql" in data:
            found = found.model_copy(update={"plan": spec.plan})
    return found.model_dump_json(exclude={"admission"}).encode(), applicant


def fingerprint(data: object) -> str:
    """Return a hash of a JSON value."""
    return validation.fingerprint(parsed(data))


class Names(NamedTuple):
    """The streams and tables that a query names."""

    streams: frozenset[str]
    tables: frozenset[str]


def names(data: object) -> Names:
    """Return the streams and tables that a query or a plan names, which was not validated yet.

    Queries whose results are read are among the streams. SQL does not tell them apart, nor from queries that
    it names itself.
    """
    nodes = parsed(data)
    if isinstance(nodes, Mapping) and isinstance(sql := nodes.get("sql"), str):
        sources = named_sources(sql)
        return Names(sources, sources)
    for key in ("plan", "nodes"):
        if isinstance(nodes, Mapping) and key in nodes:
            nodes = nodes[key]
    values = nodes.values() if isinstance(nodes, Mapping) else ()
    named = [node for node in values if isinstance(node, Mapping)]
    streams, queries, tables = (
        frozenset(value for node in named if isinstance(value := node.get(key), str))
        for key in ("stream", "query", "table")
    )
    return Names(streams | queries, tables)


def statement(text: str, catalog: Catalog) -> Statement:
    """Return a parsed statement; raises InvalidSql."""
    return parse_statement(text, catalog)


def split_statements(text: str) -> list[str]:
    """Return the statements of a script; raises InvalidSql."""
    return list(split(text))


def sql_of(plan: Plan, catalog: Catalog) -> str:
    """Return a plan as SQL; raises InvalidPlan if it does not fit the catalog."""
    return plan_to_sql(plan, catalog)
