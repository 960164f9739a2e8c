"""Scripts of SQL statements: run one after the other, up to the first error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import Request

from mavstream_protocol.errors import InvalidSql, MavstreamError
from mavstream_protocol.expressions.syntax_tree import shortened
from mavstream_protocol.wire.sql import FailedStatement, SqlAnswer, SqlProblem, SqlResult
from mavstream_server.api.services import Services
from mavstream_server.api.sql.errors import in_words_of_sql
from mavstream_server.api.sql.statements import run_statement
from mavstream_server.core.errors import ServiceError, problem_of

MOST_STATEMENTS = 1000


class ScriptStopped(ServiceError):
    """A statement failed; those before it took effect."""

    def __init__(self, error: MavstreamError, text: str, number: int, done: Sequence[SqlResult]) -> None:
        problem = problem_of(error)
        super().__init__(problem.detail, code=problem.code, errors=problem.errors)
        self.status = problem.status
        self.title = problem.title
        self._failed = _failed(text, number)
        self._done = tuple(done)

    def problem(self) -> SqlProblem:
        """Return the problem details, with the results of the statements before."""
        return SqlProblem(**dict(super().problem()), failed=self._failed, results=self._done)


async def run_script(script: str, services: Services, request: Request) -> SqlAnswer:
    """Run the statements of a script; raises InvalidSql if it cannot be read, and ScriptStopped."""
    statements = await services.queries.planner.statements(script)
    if not statements:
        detail = "there is no statement; write for example SHOW STREAMS"
        raise InvalidSql("empty_script", detail, 1, 1, "")
    if len(statements) > MOST_STATEMENTS:
        detail = (
            f"the script has {len(statements)} statements, at most {MOST_STATEMENTS} are allowed; split it"
        )
        raise InvalidSql("script_too_long", detail, 1, 1, "")
    done: list[SqlResult] = []
    for number, text in enumerate(statements, 1):
        try:
            statement = await services.queries.planner.statement(text)
            done.append(await run_statement(statement, services, request))
        except MavstreamError as error:
            holder, priorities = services.queries.registry.names.holder, services.queries.priorities()
            told = in_words_of_sql(error, holder, priorities)
            raise ScriptStopped(told, text, number, done) from error
        await asyncio.sleep(0)  # producers and other clients have their turn
    return SqlAnswer(results=tuple(done))


def _failed(text: str, number: int) -> FailedStatement:
    """Describe a statement, which has as many lines and blanks in front as in its script."""
    start = len(text) - len(text.lstrip())
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    return FailedStatement(number=number, line=line, column=column, sql=shortened(text.strip()))
