"""Route of SQL statements."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from mavstream_protocol.wire.sql import SqlAnswer, SqlScript
from mavstream_server.api.auth import require
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts
from mavstream_server.api.sql.script import run_script

router = APIRouter(prefix="/v1/sql", tags=["sql"])


@router.post("", dependencies=[Depends(require())], responses=documented(404, 409, 412, 429, 507))
async def run_sql(script: SqlScript, request: Request, parts: Parts) -> SqlAnswer:
    """Run SQL statements one after the other, up to the first error. Returns a result for each.

    Each statement needs the role of the route that does the same. If one fails, the response is its error
    (a `SqlProblem`), with the statement under `failed` and the results of those before, which took effect,
    under `results`. A SELECT is checked and not registered.
    """
    return await run_script(script.sql, parts, request)
