"""Limits of SQL statements, scripts, and texts that are no SQL."""

from __future__ import annotations

import pickle
from random import Random

import pytest
from tests.support.scale import scaled
from tests.support.sql.corpus import CATALOG, corpus

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.sql import parse_select, parse_statement, split_statements

PIECES = (
    *("SELECT", "FROM", "WHERE", "(", ")", ",", "*", "AND", "JOIN", "ON", "GROUP BY", "UNION ALL", "AS"),
    *("'", '"', "/*+", "*/", "--", ";", ".", "::", "INTERVAL '1' SECOND", "TUMBLE", "window_start", "CASE"),
    *("END", "1e999", "99999999999999999999", "\n", "é", "\x00", "room", "NOT", "DISTINCT", "HINT(", "WITH"),
)


def refused(sql: str) -> InvalidSql:
    with pytest.raises(InvalidSql) as caught:
        parse_select(sql, CATALOG)
    return caught.value


def nested(levels: int) -> str:
    return "SELECT * FROM (" * levels + "SELECT * FROM readings" + ")" * levels


def test_queries_are_nested_at_most_32_deep() -> None:
    assert parse_select(nested(31), CATALOG).root == "readings"
    error = refused(nested(32))
    assert (error.reason, error.column) == ("statement_too_deep", 15 * 32 + 1)


def test_very_deep_texts_are_refused_quickly() -> None:
    assert refused(nested(50_000)).reason == "statement_too_deep"
    assert refused("SELECT " + "(" * 100_000).reason == "expression_too_long"
    assert refused(f"SELECT {'(' * 100}1{')' * 100} AS n FROM readings").reason == "expression_too_deep"


def test_a_statement_has_at_most_a_mebibyte() -> None:
    assert refused(f"SELECT * FROM readings{' ' * (1 << 20)}").reason == "statement_too_long"


def test_a_plan_has_at_most_256_nodes() -> None:
    many = " UNION ALL ".join(["SELECT * FROM (SELECT home FROM readings WHERE home = 1)"] * 90)
    assert refused(many).reason == "plan_too_large"


def test_a_union_has_at_most_64_inputs() -> None:
    assert refused(" UNION ALL ".join(["SELECT * FROM readings"] * 65)).reason == "invalid_value"


def test_errors_travel_between_processes() -> None:
    error = refused("SELECT *\nFROM readngs")
    again = pickle.loads(pickle.dumps(error))
    assert (again.line, again.column, again.found, again.detail) == (2, 6, "readngs", error.detail)
    assert str(again) == str(error) == f"sql:2:6: {error.detail}"
    (item,) = error.problem().errors
    assert (item.pointer, item.code) == ("sql:2:6", "unknown_stream")


def test_a_script_is_split_at_semicolons_outside_of_texts() -> None:
    script = "SHOW STREAMS;\n-- a; comment\n  SELECT * FROM readings WHERE room = 'a;b';;\n\nSHOW TABLE"
    first, second, third = split_statements(script)
    assert first == "SHOW STREAMS"
    assert second.strip() == "SELECT * FROM readings WHERE room = 'a;b'"
    with pytest.raises(InvalidSql) as caught:
        parse_statement(third, CATALOG)
    assert (caught.value.line, caught.value.column) == (5, 6)


def test_texts_that_are_no_sql_are_refused_with_a_place() -> None:
    random = Random(18)
    cases = [case.sql for case in corpus()]
    places: list[tuple[InvalidSql, str]] = []
    for _ in range(scaled(1500, 30_000)):
        text = random.choice(cases)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(text) + 1)
            cut = random.choice((0, 0, 1, 5, 30))
            text = text[:at] + random.choice((" ", "")) + random.choice(PIECES) + " " + text[at + cut :]
        try:
            parse_statement(text, CATALOG)
        except InvalidSql as error:
            places.append((error, text))
    assert len(places) > 1000
    for error, text in places:
        lines = text.split("\n")
        assert error.column <= len(lines[error.line - 1]) + 1
