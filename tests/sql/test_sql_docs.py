"""The SQL on the page about it runs, statement by statement, and its Python prints what is shown."""

from __future__ import annotations

import contextlib
import io

from tests.support.documents import ROOT, blocks

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.sql import Catalog, Statement, parse_select, parse_statement, split_statements
from mavstream_protocol.sql.statements import CreateStream
from mavstream_protocol.typed_plan import StreamShape

PAGE = ROOT / "docs" / "sql.md"
ROOMS = Schema((Field("room", FieldType.STRING), Field("floor", FieldType.INT)))


def run_page() -> tuple[list[Statement], Catalog]:
    streams: dict[str, StreamShape] = {}
    catalog = Catalog(streams, {"rooms": ROOMS})
    done = []
    for block in blocks(PAGE, "sql"):
        for text in split_statements(block):
            statement = parse_statement(text, catalog)
            if isinstance(statement, CreateStream):
                spec = statement.spec
                streams[spec.name] = StreamShape(spec.schema(), spec.event_time)
            done.append(statement)
    return done, catalog


def test_the_statements_of_the_page_are_valid() -> None:
    statements, _ = run_page()
    assert len(statements) > 30
    assert len({type(statement) for statement in statements}) == 13


def test_the_python_of_the_page_prints_the_shown_output() -> None:
    (program,), (shown, error) = blocks(PAGE, "python"), blocks(PAGE, "text")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, str(PAGE), "exec"), {})
    assert printed.getvalue() == shown
    _, catalog = run_page()
    try:
        parse_select('SELECT * FROM readings WHERE room = "kitchen"', catalog)
    except InvalidSql as found:
        error = error.replace(str(found), "")
    assert error.strip() == ""
