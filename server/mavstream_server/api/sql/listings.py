"""SHOW and DESCRIBE: objects as rows."""

from __future__ import annotations

from collections.abc import Iterable

from mavstream_protocol.quantities import format_duration
from mavstream_protocol.sql.statements import ObjectKind
from mavstream_protocol.streams import FieldSpec
from mavstream_protocol.wire.resources import QueryInfo
from mavstream_protocol.wire.sql import Listed
from mavstream_server.api.services import Services
from mavstream_server.core.errors import NotFound

_PAGE = 1000


async def show(kind: ObjectKind, parts: Services) -> Listed:
    """Return all objects of a kind, ordered by name."""
    match kind:
        case ObjectKind.STREAM:
            return _streams(parts)
        case ObjectKind.TABLE:
            return _tables(parts)
        case ObjectKind.CLASS:
            return _classes(parts)
        case ObjectKind.QUERY:
            return await _queries(parts)


async def describe(name: str, parts: Services) -> Listed:
    """Return the columns of a stream, a stored table or a query; raises NotFound."""
    if name in parts.streams:
        spec = parts.streams.spec(name)
        return _columns(spec.fields, spec.event_time)
    if name in parts.tables.schemas():
        return _columns(parts.tables.info(name).fields)
    try:
        return _columns((await parts.queries.views.info(name)).fields)
    except NotFound:
        raise NotFound(
            f"there is no stream, table or query '{name}': SHOW STREAMS, SHOW TABLES and SHOW QUERIES list "
            "those that there are",
            code="unknown_object",
        ) from None


def _columns(fields: Iterable[FieldSpec], event_time: str | None = None) -> Listed:
    return Listed(
        kind="rows",
        columns=("column", "type", "nullable", "event_time"),
        rows=tuple((one.name, one.type, one.nullable, one.name == event_time) for one in fields),
    )


def _streams(parts: Services) -> Listed:
    infos = map(parts.streams.info, parts.streams.names)
    rows = tuple((one.name, one.position, one.begin, one.bytes, one.watermark, one.owner) for one in infos)
    columns = ("stream", "rows", "first_stored", "bytes", "watermark", "owner")
    return Listed(kind="rows", columns=columns, rows=rows)


def _tables(parts: Services) -> Listed:
    infos = map(parts.tables.info, parts.tables.names)
    rows = tuple((one.name, one.version, one.rows, one.bytes, one.since) for one in infos)
    return Listed(kind="rows", columns=("table", "version", "rows", "bytes", "since"), rows=rows)


def _classes(parts: Services) -> Listed:
    sizes = parts.queries.class_sizes()
    rows = tuple(
        (
            one.name,
            one.priority,
            None if one.latency is None else format_duration(one.latency),
            sizes.get(one.name, 0),
            one.description,
        )
        for one in (record.spec for record in parts.catalog.classes())
    )
    columns = ("class", "priority", "latency", "queries", "description")
    return Listed(kind="rows", columns=columns, rows=rows)


async def _queries(parts: Services) -> Listed:
    found: list[QueryInfo] = []
    after: str | None = None
    while True:
        page = await parts.queries.views.page(after, _PAGE)
        found += page.items
        after = page.next
        if after is None:
            break
    rows = tuple(
        (
            one.spec.name,
            one.id,
            one.spec.class_,
            one.state,
            one.results,
            None if one.latency_ms is None else one.latency_ms.p95,
            one.owner,
            one.reason,
        )
        for one in sorted(found, key=lambda one: (one.spec.name, one.id))
    )
    columns = ("query", "id", "class", "state", "results", "p95_ms", "owner", "reason")
    return Listed(kind="rows", columns=columns, rows=rows)
