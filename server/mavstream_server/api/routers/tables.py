"""Routes of stored tables: upload, description and removal."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import ValidationError

from mavstream_protocol.errors import ProblemItem
from mavstream_protocol.model_errors import quoted, sentence
from mavstream_protocol.names import Name
from mavstream_protocol.schema import Schema
from mavstream_protocol.tables import read_fields
from mavstream_protocol.tokens import Role
from mavstream_protocol.wire.resources import Page, TableDetail, TableInfo
from mavstream_server.api.auth import require
from mavstream_server.api.paging import PageQuery, cut
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts
from mavstream_server.api.table_bodies import TABLE_TYPES, InvalidTable, read_table
from mavstream_server.api.versions import IfMatch, etag

router = APIRouter(prefix="/v1/tables", tags=["tables"])

_READ = [Depends(require())]
_PUT = [Depends(require(Role.CLIENT, Role.FEEDER))]
_REMOVE = [Depends(require(Role.ADMIN))]

TableName = Annotated[Name, Path(description="Name of the table")]
Fields = Annotated[
    str | None,
    Query(
        description="Fields of a new table, with `?` for nullable ones; if omitted, an existing table "
        "retains its fields, and those of a new table are inferred from the rows",
        examples=["room:string,threshold:float?"],
        max_length=4096,  # a character can take twelve bytes in the URL, which is limited to 64 KiB
    ),
]


@router.get("", dependencies=_READ, responses=documented())
async def list_tables(parts: Parts, page: PageQuery) -> Page[TableInfo]:
    """List the stored tables, ordered by name."""
    names = [name for name in parts.tables.names if page.after is None or name > page.after]
    return cut([parts.tables.info(name) for name in names[: page.limit + 1]], page, key=lambda one: one.name)


@router.get("/{name}", dependencies=_READ, responses=documented(404))
async def show_table(name: TableName, parts: Parts, response: Response) -> TableDetail:
    """Get a stored table: its fields, the retained versions, and the queries that join it."""
    found = parts.tables.detail(name, parts.queries.table_users(name))
    response.headers["etag"] = etag(found.version)
    return found


@router.put(
    "/{name}",
    dependencies=_PUT,
    responses={
        **documented(408, 409, 412, 413, 415, 429, 507),
        201: {"description": "The table is new", "model": TableInfo},
    },
    openapi_extra={"requestBody": {"required": True, "content": TABLE_TYPES}},
)
async def put_table(
    name: TableName,
    request: Request,
    parts: Parts,
    response: Response,
    expected: IfMatch,
    fields: Fields = None,
) -> TableInfo:
    """Upload rows as the current version of a stored table; stream rows that arrive from now on join it."""
    declared = parts.tables.schemas().get(name) if fields is None else _declared(fields)
    body, limit = await request.body(), parts.settings.max_table_bytes
    kind = request.headers.get("content-type", "")
    # Parsing a large body takes seconds, which would block the event loop.
    given = await asyncio.to_thread(read_table, kind, body, declared, limit)
    info, created = await parts.tables.put(name, given, expected)
    response.status_code = 201 if created else 200
    response.headers["etag"] = etag(info.version)
    response.headers["location"] = f"/v1/tables/{name}"
    return info


@router.delete("/{name}", status_code=204, dependencies=_REMOVE, responses=documented(404, 409))
async def remove_table(name: TableName, parts: Parts) -> None:
    """Remove a stored table with all its versions. Refused while queries join it."""
    await parts.tables.remove(name, lambda: parts.queries.table_users(name))


def _declared(fields: str) -> Schema:
    try:
        return read_fields(fields).schema()
    except ValidationError as error:
        reason = "; ".join(
            sentence(item, quoted(item, "the table"), shown=False) for item in error.errors(include_url=False)
        )
    except ValueError as error:
        reason = str(error)
    item = ProblemItem(
        pointer="query/fields", code="invalid_fields", detail=f"the fields are wrong: {reason}"
    )
    raise InvalidTable([item])
