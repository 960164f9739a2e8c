"""The conversation that runs SQL statements: all on the server, but for tables made from files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mavstream._convert.json_body import json_body
from mavstream._convert.tables import table_body
from mavstream._errors import NotFound, ProblemError, SqlError
from mavstream._sql.results import SqlResults
from mavstream._transport.http import exchange, fetch
from mavstream._transport.retry import Retry
from mavstream._transport.steps import Request, Talk, quote
from mavstream_protocol import InvalidObject, Problem
from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.tables import write_fields
from mavstream_protocol.wire.resources import TableInfo

if TYPE_CHECKING:
    from mavstream_protocol.sql.statements import CreateTable
    from mavstream_protocol.wire.sql import Created, SqlAnswer, SqlResult

_JSON = {"Content-Type": "application/json"}


class _Part(NamedTuple):
    """A part of a script: a statement that reads a file, or others with the text in front blanked out."""

    text: str
    table: CreateTable | None
    first: int
    """The number of its first statement, from 1."""

    @property
    def start(self) -> tuple[int, int]:
        """Line and column of its first statement, from 1."""
        blank = self.text[: len(self.text) - len(self.text.lstrip())]
        return blank.count("\n") + 1, len(blank) - blank.rfind("\n")


def run_sql(script: str, retry: Retry) -> Talk[SqlResults]:
    """Run a script; raises SqlError at the first statement that fails."""
    done: list[SqlResult] = []
    for part in _parts(script):
        try:
            if part.table is None:
                done += (yield from _on_server(part.text, retry)).results
            else:
                done.append((yield from _from_file(part.table, retry)))
        except ProblemError as error:
            raise SqlError.of(error.problem, script, done, part.first - 1, part.start) from None
        except InvalidObject as error:
            raise SqlError.of(error.problem(), script, done, part.first - 1, part.start) from None
    return SqlResults(done)


def _parts(script: str) -> Iterator[_Part]:
    """Yield the parts of a script. Only one that can contain CREATE TABLE is read here."""
    if "table" not in script.lower():
        yield _Part(script, None, 1)
        return
    from mavstream_protocol.sql import Catalog, parse_statement, statement_spans
    from mavstream_protocol.sql.statements import CreateTable

    try:
        spans = list(statement_spans(script))
    except InvalidSql:
        yield _Part(script, None, 1)  # the server says what is wrong
        return
    begun: int | None = None
    for number, (start, end) in enumerate(spans):
        words = script[start:end].upper().split(None, 4)
        if words[:2] == ["CREATE", "TABLE"] or words[:4] == ["CREATE", "OR", "REPLACE", "TABLE"]:
            if begun is not None:
                yield _Part(cut(script, spans[begun][0], spans[number - 1][1]), None, begun + 1)
                begun = None
            try:
                statement = parse_statement(cut(script, start, end), Catalog())
            except InvalidSql as error:
                raise SqlError.of(error.problem(), script, (), number) from None
            assert isinstance(statement, CreateTable)
            yield _Part(cut(script, start, end), statement, number + 1)
        elif begun is None:
            begun = number
    if begun is not None:
        yield _Part(cut(script, spans[begun][0], spans[-1][1]), None, begun + 1)
    if not spans:
        yield _Part(script, None, 1)


def cut(script: str, start: int, end: int) -> str:
    """Return a piece of a script behind as many lines and blanks, so that errors name its place."""
    column = start - (script.rfind("\n", 0, start) + 1)
    return "\n" * script.count("\n", 0, start) + " " * column + script[start:end]


def _on_server(sql: str, retry: Retry) -> Talk[SqlAnswer]:
    from mavstream_protocol.wire.sql import SqlAnswer

    content = json_body({"sql": sql})
    # Not repeated after a lost answer: the statements may have taken effect.
    request = Request("POST", "/v1/sql", headers=_JSON, content=content, repeatable=False)
    return (yield from fetch(request, retry, SqlAnswer))


def _from_file(statement: CreateTable, retry: Retry) -> Talk[Created]:
    """Upload a file as a table."""
    from mavstream_protocol.sql.statements import ObjectKind
    from mavstream_protocol.wire.sql import Created

    path = f"/v1/tables/{quote(statement.name)}"
    kind, content = table_body(statement.file)
    known = yield from _is_known(path, retry)
    if known and not statement.replace:
        detail = f"table '{statement.name}' exists: write CREATE OR REPLACE TABLE for a new version"
        raise ProblemError(Problem(title="The table exists", status=409, code="table_exists", detail=detail))
    params = {} if statement.fields is None else {"fields": write_fields(statement.fields)}
    request = Request("PUT", path, params=params, headers={"Content-Type": kind}, content=content)
    yield from fetch(request, retry, TableInfo)
    return Created(kind="created", object=ObjectKind.TABLE, name=statement.name, replaced=known)


def _is_known(path: str, retry: Retry) -> Talk[bool]:
    try:
        yield from exchange(Request("GET", path), retry)
    except NotFound:
        return False
    return True
