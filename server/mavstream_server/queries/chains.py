"""Chains: registered queries that read the results of other registered queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mavstream_protocol.queries import QuerySpec, ReadFrom
from mavstream_protocol.schema import Field
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_server.catalog.catalog import QueryRecord
from mavstream_server.core.errors import Conflict
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry

_SHOWN = 5


class ReadableShapes(Mapping[str, StreamShape]):
    """What plans can read as rows, by name: streams, and the results of queries."""

    def __init__(self, streams: Mapping[str, StreamShape], registry: QueryRegistry) -> None:
        """`streams` is a live view."""
        self._streams = streams
        self._results = registry.results

    def __getitem__(self, name: str) -> StreamShape:
        found = self._streams.get(name)
        return self._results[name] if found is None else found

    def __iter__(self) -> Iterator[str]:
        yield from self._streams
        yield from self._results

    def __len__(self) -> int:
        return len(self._streams) + len(self._results)


def require_readable(plan: TypedPlan, read_from: ReadFrom, registry: QueryRegistry) -> None:
    """Raise Conflict if a plan reads the results of a query that gives no more, or that runs elsewhere."""
    for name, id_ in plan.upstream_queries.items():
        query = registry.find(id_)
        if query is not None and query.outside:
            raise Conflict(
                f"query '{name}' has backend '{query.record.spec.backend.value}', and plans read results of "
                "the server's own engine: put the plan of that query in the place of its results",
                code="upstream_outside",
            )
        if query is not None and query.getting is not None and query.getting != registry.results.get(name):
            raise Conflict(
                f"query '{name}' is getting other columns: try again when its plan was replaced",
                code="query_changing",
            )
        if query is not None and query.final is not None and read_from is not ReadFrom.EARLIEST:
            raise Conflict(
                f"query '{name}' has ended ({query.final.value}) and gives no more results: "
                'read those that are stored with "from": "earliest", or register it again',
                code="upstream_ended",
            )


def require_unread(query: Query, registry: QueryRegistry) -> None:
    """Raise Conflict while queries read the results of a query."""
    found = [one.id for one in registry.readers(query.id)]
    if found:
        shown = ", ".join(f"'{id_}'" for id_ in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise Conflict(
            f"the results of query '{query.name}' are read by {shown}{more}: remove these queries first",
            code="query_in_use",
        )


def check_replacement(query: Query, spec: QuerySpec, plan: TypedPlan, registry: QueryRegistry) -> None:
    """Raise Conflict if a query cannot get a specification, with this plan, because of what reads it.

    No query may read itself, however many queries are in between, and those that read it must find the
    columns that they use, the same time and order, under the name of a stream if they read it as one.
    """
    name = query.name
    reached = plan_origins(plan, registry)
    if query.id in reached:
        through = sorted(one for one in plan.upstream_queries if _reaches(one, query.id, plan, registry))
        raise Conflict(
            f"query '{name}' would read itself through {', '.join(map(repr, through))}: "
            "a chain of queries must begin with streams",
            code="query_cycle",
        )
    readers = registry.readers(query.id)
    if query.record.spec.derive and not spec.derive:
        _require_unread_as_stream(name, readers)
    if query.plan is None:
        return
    before, after = (one.results(query.id) for one in (query.plan, plan))
    for reader in readers if before != after else ():
        missed = _missed(reader, before, after)
        if missed is not None:
            raise Conflict(
                f"the results of query '{name}' are read by '{reader.id}', which {missed}: keep that, "
                "replace the reader first, or remove it",
                code="query_in_use",
            )


def _require_unread_as_stream(name: str, readers: Iterable[Query]) -> None:
    found = [one.id for one in readers if name in one.record.spec.plan.streams]
    if found:
        raise Conflict(
            f"derived stream '{name}' is read as a stream by {', '.join(map(repr, found[:_SHOWN]))}: keep "
            f'"derive": true, or let these read the query first: {{"op": "source", "query": "{name}"}}',
            code="query_in_use",
        )


def plan_streams(plan: TypedPlan, registry: QueryRegistry) -> frozenset[str]:
    """Return the streams whose rows reach a plan, through other queries, too."""
    return frozenset(one for one in plan_origins(plan, registry) if one not in registry)


def in_reading_order(records: Iterable[QueryRecord]) -> Iterator[tuple[QueryRecord, bool]]:
    """Yield the queries of a catalog, each after those that it reads, and whether its plan is needed.

    It is unless the query has ended and no other that has not ended reads it.
    """
    every = list(records)
    by_name = {record.spec.name: record for record in every}
    needed: set[str] = set()
    waiting = [record for record in every if record.final_state is None]
    while waiting:
        record = waiting.pop()
        if record.id not in needed:
            needed.add(record.id)
            waiting += [by_name[name] for name in _read_names(record) if name in by_name]
    done: set[str] = set()
    stack = [(record, False) for record in reversed(every)]
    while stack:
        record, after_those_below = stack.pop()
        if record.id in done:
            continue
        if after_those_below:
            done.add(record.id)
            yield record, record.id in needed
            continue
        stack.append((record, True))
        below = (by_name[name] for name in _read_names(record) if name in by_name)
        stack += [(one, False) for one in below if one.id != record.id]


def _read_names(record: QueryRecord) -> frozenset[str]:
    return record.spec.plan.queries | record.spec.plan.streams


def plan_origins(plan: TypedPlan, registry: QueryRegistry) -> frozenset[str]:
    """Return the streams whose rows reach a plan, and the ids of the queries that they pass on their way."""
    found = {source.stream for source in plan.sources if source.query is None}
    for id_ in plan.upstream_queries.values():
        query = registry.find(id_)
        found |= {id_} if query is None else {id_, *query.origins}
    return frozenset(found)


def _reaches(name: str, id_: str, plan: TypedPlan, registry: QueryRegistry) -> bool:
    upstream = plan.upstream_queries[name]
    query = registry.find(upstream)
    return upstream == id_ or (query is not None and id_ in query.origins)


def _missed(reader: Query, before: StreamShape, after: StreamShape) -> str | None:
    """Return what a query uses of the results of another one that would not be as before; None if nothing."""
    if reader.plan is None:
        return None
    needed = reader.plan.needed_columns()
    for source in reader.plan.sources:
        for name in needed[source.name] if source.query == before.query else ():
            expected, found = before.schema.get(name), after.schema.get(name)
            if expected != found and expected is not None:
                got = "which the new plan does not give" if found is None else f"got {_column(found)}"
                return f"expects the column {_column(expected)}, {got}"
    if before.event_time != after.event_time:
        return f"expects the time of rows in column {before.event_time!r}, got {after.event_time!r}"
    if before.in_order and not after.in_order:
        return "depends on the order of its results, and the new plan gives them in none"
    return None


def _column(field: Field) -> str:
    return f"{field.name} {field.type}{' null' if field.nullable else ''}"


def same_answers(before: TypedPlan, after: TypedPlan) -> bool:
    """Whether a plan still means the same when what it reads has other columns than those that it uses."""
    return before.schema == after.schema and before.needed_columns() == after.needed_columns()
