"""Requirements: a predicate passes no row that does not meet them, and counts no error there."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from mavstream_protocol.expressions.parser import parse_predicate
from mavstream_protocol.schema import Field, FieldType
from mavstream_server.columns.column import Column
from mavstream_server.expressions import RowErrors, compile_predicate
from mavstream_server.expressions.requirements import RequirementTable, requirements

TYPES = {"a": FieldType.INT, "x": FieldType.FLOAT, "s": FieldType.STRING, "p": FieldType.BOOL}
FIELDS = {name: Field(name, type_, True) for name, type_ in TYPES.items()}


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("a > 1 AND x <= 2.5", [("a", ">", 1), ("x", "<=", 2.5)]),
        ("1 < a AND (s = 'b' AND p)", [("a", ">", 1), ("s", "=", "b")]),
        ("a BETWEEN 1 AND 3", [("a", ">=", 1), ("a", "<=", 3)]),
        ("a <> 1 AND sqrt(x) > 1", [("a", "<>", 1)]),
        ("a > 1 OR x < 2", []),
        ("NOT a > 1", []),
        ("s > 'b' AND s LIKE 'c%'", []),
        ("a = NULL", []),
        ("a > x", []),
    ],
)
def test_comparisons_with_constants_that_all_must_hold_are_found(
    predicate: str, expected: list[tuple[str, str, Any]]
) -> None:
    found = requirements(parse_predicate(predicate, FIELDS))
    assert [(each.column, each.function, each.value) for each in found] == expected


def _rows(random: Random, size: int) -> dict[str, Column]:
    choices: dict[str, list[Any]] = {
        "a": [None, -1, 0, 1, 2, 3],
        "x": [None, -4.0, 0.0, 0.5, 9.0],
        "s": [None, "a", "b", "c"],
        "p": [None, True, False],
    }
    return {
        name: Column.from_list(type_, random.choices(choices[name], k=size)) for name, type_ in TYPES.items()
    }


@pytest.mark.parametrize(
    "form",
    [
        "a > {i} AND x < {f}",
        "a = {i} AND s = '{t}'",
        "a BETWEEN {i} AND {i} + 1",
        "s = '{t}' AND sqrt(x) > {f}",
        "sqrt(x) > {f} AND {i} <= a",
        "a >= {i} AND 10 / a > {f} AND p",
    ],
)
def test_a_predicate_that_may_not_pass_drops_all_rows_without_an_error(form: str) -> None:
    random = Random(form)
    several = [
        parse_predicate(form.format(i=i, f=f, t=t), FIELDS)
        for i in range(4)
        for f in (0.5, 2.0)
        for t in "abz"
    ]
    by_forms: dict[object, list[Any]] = {}
    for predicate in several:
        required = requirements(predicate)
        by_forms.setdefault(tuple(each.form for each in required), []).append((predicate, required))
    dropped = 0
    for forms, members in by_forms.items():
        assert forms
        table = RequirementTable([required for _, required in members])
        for size in (1, 1, 1, 3):
            columns = _rows(random, size)
            for (predicate, _), may_pass in zip(members, table.may_pass(columns), strict=True):
                errors = RowErrors()
                rows = compile_predicate(predicate)(columns, size, errors)
                assert may_pass or (not len(rows) and not errors.count)
                dropped += not may_pass
    assert dropped


def test_texts_that_the_dictionary_gets_later_are_found() -> None:
    predicates = [parse_predicate(f"s = '{text}'", FIELDS) for text in "ab"]
    table = RequirementTable([requirements(predicate) for predicate in predicates])
    column = Column.from_list(FieldType.STRING, ["a"])
    assert table.may_pass({"s": column}).tolist() == [True, False]
    assert column.dictionary is not None
    code = column.dictionary.add("b")
    later = Column(np.array([code], dtype=np.int32), None, column.dictionary)
    assert table.may_pass({"s": later}).tolist() == [False, True]
