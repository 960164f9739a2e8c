"""Compiled expressions on small tables."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from mavstream_protocol.expressions.functions import FUNCTIONS, OPERATORS
from mavstream_protocol.expressions.parser import parse_predicate, parse_scalar
from mavstream_protocol.schema import Field, FieldType
from mavstream_server.columns.column import Column
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.expressions import RowErrors, compile_expression, compile_predicate
from mavstream_server.expressions.compiler import BUILDERS

INT, FLOAT, BOOL, STRING, TIMESTAMP = (
    FieldType.INT,
    FieldType.FLOAT,
    FieldType.BOOL,
    FieldType.STRING,
    FieldType.TIMESTAMP,
)
TYPES = {
    "a": INT,
    "b": INT,
    "x": FLOAT,
    "y": FLOAT,
    "p": BOOL,
    "q": BOOL,
    "s": STRING,
    "t": STRING,
    "u": TIMESTAMP,
}
FIELDS = {name: Field(name, type_, True) for name, type_ in TYPES.items()}
SMALLEST = -(2**63)
LARGEST = 2**63 - 1


def evaluate(text: str, **values: list[Any]) -> tuple[list[Any], RowErrors]:
    size = len(next(iter(values.values()), [0]))
    columns = {name: Column.from_list(TYPES[name], rows) for name, rows in values.items()}
    expression = parse_scalar(text, FIELDS)
    errors = RowErrors()
    column = compile_expression(expression)(columns, size, errors)
    assert len(column) == size
    return column.to_list(expression.type), errors


def value(text: str, **values: list[Any]) -> list[Any]:
    result, errors = evaluate(text, **values)
    assert errors.count == 0
    assert errors.first is None
    return result


def test_every_function_has_a_builder() -> None:
    assert {*OPERATORS, *FUNCTIONS, "cast", "try_cast"} == set(BUILDERS)


def test_the_compiler_does_not_load_the_parser() -> None:
    parser = "mavstream_protocol.expressions.parser"
    probe = f"import sys, mavstream_server.expressions; sys.exit('{parser}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_three_valued_logic() -> None:
    three = [True, False, None]
    left = [a for a in three for _ in three]
    right = three * 3
    assert value("p AND q", p=left, q=right) == [True, False, None, False, False, False, None, False, None]
    assert value("p OR q", p=left, q=right) == [True, True, True, True, False, None, True, None, None]
    assert value("NOT p", p=three) == [False, True, None]
    assert value("p AND q AND NULL", p=left, q=right) == [None, False, None, *[False] * 3, None, False, None]


def test_a_constant_fills_all_rows() -> None:
    assert value("1 + 2", a=[1, 1]) == [3, 3]
    assert value("'x'", a=[1, 1]) == ["x", "x"]
    assert value("NULL", a=[1, 1]) == [None, None]


def test_division() -> None:
    rows = {"a": [7, -7, 7, 7, None], "b": [2, 2, -2, 0, 1]}
    assert value("a / b", **rows) == [3.5, -3.5, -3.5, None, None]
    assert value("a // b", **rows) == [3, -3, -3, None, None]
    assert value("a % b", **rows) == [1, -1, 1, None, None]
    assert value("a / 0", **rows) == [None] * 5
    assert value("a // 0", **rows) == [None] * 5
    assert value("x % 0.0", x=[1.0]) == [None]


@pytest.mark.parametrize(
    ("text", "a"),
    [
        ("a + 1", LARGEST),
        ("a - 1", SMALLEST),
        ("1 - a", SMALLEST),
        ("a * 2", LARGEST),
        ("a * -1", SMALLEST),
        ("-1 * a", SMALLEST),
        ("a * a", 2**32),
        ("-a", SMALLEST),
        ("abs(a)", SMALLEST),
        ("a // -1", SMALLEST),
        ("a % -1", SMALLEST),
        ("round(a, -1)", LARGEST),
        ("ln(a)", 0),
        ("sqrt(a)", -1),
        ("exp(a)", 1000),
        ("power(10, a)", 400),
        ("1e307 * a", 100),
        ("a * 1e307 + 1e308", 10),
        ("1e308 / (a * 0.1 + 0.9)", -8),
    ],
)
def test_overflow_and_domain_fail_only_their_row(text: str, a: int) -> None:
    result, errors = evaluate(text, a=[a, 2, None])
    assert [item is None for item in result] == [True, False, True]
    assert errors.count == 1
    assert errors.mask(3).tolist() == [True, False, False]
    assert errors.first


def test_a_null_after_a_failure_does_not_hide_it() -> None:
    result, errors = evaluate("(sqrt(x) = NULL) IS NULL", x=[-1.0, 4.0])
    assert result == [None, True]
    assert errors.count == 1


def test_a_constant_that_fails_fails_every_row() -> None:
    result, errors = evaluate("sqrt(-1)", a=[1, 2])
    assert result == [None, None]
    assert errors.count == 2


def test_no_function_replaces_the_value_of_a_failed_row() -> None:
    result, errors = evaluate("coalesce(sqrt(x), 5)", x=[-1.0, None, 4.0])
    assert result == [None, 5.0, 2.0]
    assert errors.mask(3).tolist() == [True, False, False]
    assert evaluate("sqrt(x) IS NULL", x=[-1.0, None])[0] == [None, True]


def test_errors_in_branches_not_taken_are_ignored() -> None:
    assert value("CASE WHEN x >= 0 THEN sqrt(x) ELSE 0 END", x=[4.0, -4.0]) == [2.0, 0.0]
    assert value("coalesce(y, sqrt(x))", x=[-1.0, 4.0], y=[1.0, None]) == [1.0, 2.0]
    assert value("x < 0 OR sqrt(x) > 1", x=[-1.0, 4.0]) == [True, True]
    assert value("x >= 0 AND sqrt(x) > 1", x=[-1.0, 4.0]) == [False, True]
    result, errors = evaluate("p AND sqrt(x) > 1", p=[None, True, False], x=[-1.0] * 3)
    assert result == [None, None, False]
    assert errors.mask(3).tolist() == [True, True, False]


def test_values_of_null_rows_do_not_matter() -> None:
    valid = np.array([False, False, False, True])
    columns = {
        "x": Column(np.array([np.nan, np.inf, -1e308, 4.0]), valid),
        "a": Column(np.array([SMALLEST, LARGEST, 0, 4]), valid),
    }
    texts = (
        "x * 1e308 - 1e308 * x", "sqrt(x)", "ln(x)", "1 / x", "x / 0.0", "a * a", "-a", "a // a",
        "CAST(x AS INT)",
        "round(x, 2)", "round(x)", "floor(x)", "x > 1 AND x < 5", "least(x, NULL)", "x IN (1, 2, 3, 4, 5, 6)",
        "a % a", "abs(a)", "CAST(x AS STRING)", "CAST(x AS BOOL)", "x BETWEEN 1 AND 5", "power(x, x)",
        "exp(x)",
    )  # fmt: skip
    for text in texts:
        expression = parse_scalar(text, FIELDS)
        errors = RowErrors()
        result = compile_expression(expression)(columns, 4, errors).to_list(expression.type)
        assert result[:3] == [None] * 3, text
        assert errors.count == 0 or result[3] is None, text


def test_rounding() -> None:
    halves = [0.5, 1.5, 2.5, -0.5, -2.5, 0.49999999999999994]
    assert value("round(x)", x=halves) == [1.0, 2.0, 3.0, -1.0, -3.0, 0.0]
    assert value("CAST(x AS INT)", x=halves) == [0, 2, 2, 0, -2, 0]
    assert value("round(x, 2)", x=[2.675, 1e300]) == [2.68, 1e300]
    assert value("round(a, -1)", a=[14, 15, -15]) == [10, 20, -20]


def test_casts() -> None:
    result, errors = evaluate("CAST(s AS INT)", s=["12", " 7 ", "1e3", "2.5", "x", None])
    assert result == [12, 7, 1000, 3, None, None]
    assert errors.mask(6).tolist() == [False] * 4 + [True, False]
    assert value("TRY_CAST(s AS FLOAT)", s=["1.5", "inf", "1e999", "x"]) == [1.5, None, None, None]
    assert value("CAST(a AS STRING)", a=[1, None, -5, 1]) == ["1", None, "-5", "1"]
    assert value("CAST(x AS STRING)", x=[1.0, -0.0, 0.0, 1e16]) == ["1.0", "-0.0", "0.0", "1e+16"]
    assert value("CAST(u AS STRING)", u=[0, 1704067200100000]) == [
        "1970-01-01 00:00:00",
        "2024-01-01 00:00:00.1",
    ]
    assert value("CAST(s AS TIMESTAMP)", s=["2024-01-01T00:00:00Z", "2024-01-01 00:00:01.5"]) == [
        1704067200000000,
        1704067201500000,
    ]
    assert evaluate("CAST(s AS TIMESTAMP)", s=["2024-01-01 00:00:00+02"])[1].count == 1


def test_text_functions() -> None:
    assert value("upper(s)", s=["straße", None, "abc"]) == ["STRAẞE", None, "ABC"]
    assert value("s || '-' || t", s=["a", None], t=["b", "c"]) == ["a-b", None]
    assert value("concat(s, '-', t)", s=["a", None], t=["b", "c"]) == ["a-b", "-c"]
    assert value("concat(s, '!')", s=["a", None]) == ["a!", "!"]
    assert value("substr(s, a)", s=["hello"] * 3, a=[2, -2, 0]) == ["ello", "lo", "hello"]
    assert value("length(s)", s=["", "été", None]) == [0, 3, None]
    assert value("least(s, t)", s=["b", None, None], t=["a", "c", None]) == ["a", "c", None]
    assert value("s LIKE 'a%_c'", s=["abc", "ac", "abbc", "abcd"]) == [True, False, True, False]
    assert value("s LIKE '%.\\%'", s=["x.\\", "x.", ".\\ab"]) == [True, False, True]


def test_like_takes_no_exponential_time() -> None:
    started = time.process_time()
    assert value(f"s LIKE '{'%a' * 30}%b'", s=["a" * 5000]) == [False]
    assert time.process_time() - started < 1


def test_text_comparisons() -> None:
    rows = {"s": ["a", "b", "é", None], "t": ["a", "a", "z", "a"]}
    assert value("s = t", **rows) == [True, False, False, None]
    assert value("s > t", **rows) == [False, True, True, None]
    assert value("s = 'b'", **rows) == [False, True, False, None]
    assert value("s <> 'none'", **rows) == [True, True, True, None]
    assert value("'b' > s", **rows) == [True, False, False, None]
    assert value("s IN ('a', 'é')", **rows) == [True, False, True, None]
    assert value("s NOT IN ('a', NULL)", **rows) == [False, None, None, None]


def test_two_columns_of_one_dictionary() -> None:
    words = Dictionary(["a", "b"])
    codes = np.array([0, 1], dtype=np.int32)
    columns = {"s": Column(codes, None, words), "t": Column(codes[::-1].copy(), None, words)}
    for text, expected in (("s = t", [False, False]), ("s < t", [True, False]), ("s || t", ["ab", "ba"])):
        expression = parse_scalar(text, FIELDS)
        assert compile_expression(expression)(columns, 2, RowErrors()).to_list(expression.type) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("upper(s)", ["A", "B", "C"]),
        ("length(s)", [1, 1, 1]),
        ("s IN ('a', 'b', 'c', 'd')", [True, True, True]),
        ("coalesce(s, 'x')", ["a", "b", "c"]),
        ("CASE WHEN s < 'b' THEN 'low' ELSE s END", ["low", "b", "c"]),
        ("CAST(s AS INT) IS NULL", [None, None, None]),
        ("substr(s, 1, 1)", ["a", "b", "c"]),
        ("s LIKE '%c' ESCAPE '!'", [False, False, True]),
    ],
)
def test_results_are_extended_with_a_growing_dictionary(text: str, expected: list[Any]) -> None:
    expression = parse_scalar(text, FIELDS)
    evaluator = compile_expression(expression)
    words = Dictionary(["a"])
    found: list[Any] = []
    for code, word in enumerate(("a", "b", "c")):
        words.add(word)
        column = Column(np.array([code, 0], dtype=np.int32), np.array([True, False]), words)
        found += evaluator({"s": column}, 2, RowErrors()).to_list(expression.type)[:1]
    assert found == expected


def test_the_dictionary_of_a_text_function_is_cached_with_its_source() -> None:
    evaluator = compile_expression(parse_scalar("upper(s)", FIELDS))
    column = Column.from_list(STRING, ["a", "b"])
    first = evaluator({"s": column}, 2, RowErrors())
    assert column.dictionary is not None
    column.dictionary.add("c")
    assert evaluator({"s": column}, 2, RowErrors()).dictionary is first.dictionary


def test_empty_dictionaries_and_no_rows() -> None:
    texts = (
        "upper(s)", "length(s)", "s = 'a'", "s < 'a'", "s = t", "s < t", "s IN ('a', 'b', 'c', 'd')",
        "s || t",
        "coalesce(s, t)", "CASE WHEN s = 'a' THEN s END", "CAST(s AS INT)", "substr(s, 1)",
        "nullif(s, t)", "least(s, t)",
        "s LIKE t", "CASE s WHEN t THEN 1 END", "a + a", "a * a", "-a", "a // a", "sqrt(a)",
        "round(a, -1)", "a IN (1, a)",
        "CAST(a AS STRING)", "a BETWEEN 1 AND 2",
    )  # fmt: skip
    for size in (2, 0):
        nothing = np.zeros(size, dtype=np.bool_)
        columns = {name: Column(np.full(size, 7, dtype=np.int32), nothing, Dictionary()) for name in "st"}
        columns["a"] = Column(np.full(size, 7), nothing)
        for text in texts:
            expression = parse_scalar(text, FIELDS)
            errors = RowErrors()
            result = compile_expression(expression)(columns, size, errors)
            assert result.to_list(expression.type) == [None] * size, text
            assert errors.count == 0


def test_mixed_dictionaries_in_choices() -> None:
    rows = {"s": ["a", None, "c"], "t": ["x", "y", "c"]}
    assert value("coalesce(s, t)", **rows) == ["a", "y", "c"]
    assert value("CASE WHEN s = t THEN 'same' WHEN s IS NULL THEN t ELSE s END", **rows) == ["a", "y", "same"]
    assert value("nullif(s, t)", **rows) == ["a", None, None]


def test_choices() -> None:
    assert value("CASE a WHEN 1 THEN 'one' WHEN 2 THEN 'two' END", a=[1, 2, 3, None]) == [
        "one",
        "two",
        None,
        None,
    ]
    assert value("nullif(a, 1.0)", a=[1, 2, None]) == [None, 2, None]
    assert value("greatest(a, x)", a=[1, None, 3], x=[2.5, 1.5, None]) == [2.5, 1.5, 3.0]
    assert value("a BETWEEN 1 AND b", a=[1, 5, 0, 1], b=[2, 2, None, None]) == [True, False, False, None]
    assert value("a IN (1, b)", a=[1, 2, 3, None], b=[None, 2, None, 1]) == [True, True, None, None]


def test_parts_of_timestamps() -> None:
    times = [1704164645700000, -300000, None]
    assert value("hour(u)", u=times) == [3, 23, None]
    assert value("minute(u)", u=times) == [4, 59, None]
    assert value("second(u)", u=times) == [5, 59, None]
    assert value("dayofweek(u)", u=times) == [2, 3, None]
    assert value("epoch(u)", u=times) == [1704164645.7, -0.3, None]
    assert value("u >= '2024-01-01'", u=times) == [True, False, None]


def test_calendar_and_truncation() -> None:
    times = [1709208000500000, -1, None]  # 2024-02-29 12:00:00.5 and the last microsecond of 1969
    assert value("EXTRACT(year FROM u)", u=times) == [2024, 1969, None]
    assert value("extract('month' FROM u)", u=times) == [2, 12, None]
    assert value("day(u)", u=times) == [29, 31, None]
    assert value("EXTRACT(dow FROM u)", u=times) == [4, 3, None]
    assert value("date_trunc('second', u)", u=times) == [1709208000000000, -1_000_000, None]
    assert value("date_trunc('week', u) = '2024-02-26'", u=times) == [True, False, None]
    assert value("date_trunc('QUARTER', u)", u=times) == [1704067200000000, -92 * 86_400_000_000, None]


def test_intervals_move_timestamps() -> None:
    times = [0, -5, None]
    assert value("u + INTERVAL '1' SECOND", u=times) == [1_000_000, 999_995, None]
    assert value("u - INTERVAL '1.5 ms'", u=times) == [-1500, -1505, None]
    assert value("INTERVAL 2 HOURS + u", u=times) == [7_200_000_000, 7_199_999_995, None]
    assert value("u > u - INTERVAL '1' MICROSECOND", u=times) == [True, True, None]


def test_ilike_ignores_case() -> None:
    texts = ["Kitchen", "HALL", None]
    assert value("s ILIKE 'k%N'", s=texts) == [True, False, None]
    assert value("s NOT ILIKE 'h!_ll' ESCAPE '!'", s=texts) == [True, True, None]


def test_predicates_give_row_numbers() -> None:
    columns = {"x": Column.from_list(FLOAT, [1.0, None, 40.0, -1.0])}
    errors = RowErrors()
    rows = compile_predicate(parse_predicate("x > 0", FIELDS))(columns, 4, errors)
    assert rows.tolist() == [0, 2]
    rows = compile_predicate(parse_predicate("sqrt(x) > 0", FIELDS))(columns, 4, errors)
    assert rows.tolist() == [0, 2]
    assert errors.count == 1
    assert compile_predicate(parse_predicate("TRUE", FIELDS))(columns, 4, errors).tolist() == [0, 1, 2, 3]
    assert compile_predicate(parse_predicate("NULL", FIELDS))(columns, 4, errors).tolist() == []


def test_expressions_share_a_collector_but_not_their_nulls() -> None:
    columns = {"x": Column.from_list(FLOAT, [-1.0, 4.0])}
    errors = RowErrors()
    compile_expression(parse_scalar("sqrt(x)", FIELDS))(columns, 2, errors)
    other = compile_expression(parse_scalar("x * 2", FIELDS))(columns, 2, errors)
    assert other.to_list(FLOAT) == [-2.0, 8.0]
    assert errors.count == 1
