"""Row hashes depend on the values of a row alone."""

from __future__ import annotations

import numpy as np

from mavstream_server.columns.column import Column
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.columns.row_hash import row_hashes


def hashes(*columns: Column) -> list[tuple[int, int]]:
    high, low = row_hashes(columns, len(columns[0].values))
    return list(zip(high.tolist(), low.tolist(), strict=True))


def texts(values: list[str], order: list[str]) -> Column:
    dictionary = Dictionary(order)
    return Column(np.array([dictionary.code(value) for value in values], dtype=np.int32), None, dictionary)


def test_texts_with_other_codes_have_the_same_hash() -> None:
    one = texts(["a", "b", "a"], ["a", "b"])
    two = texts(["a", "b", "a"], ["c", "b", "a"])
    assert hashes(one) == hashes(two)
    assert hashes(one)[0] == hashes(one)[2] != hashes(one)[1]


def test_a_null_differs_from_every_value_and_equals_a_null_whatever_is_below_it() -> None:
    valid = np.array([True, False, False])
    found = hashes(Column(np.array([0, 0, 7]), valid))
    assert found[1] == found[2] != found[0]


def test_equal_floats_have_one_hash() -> None:
    found = hashes(Column(np.array([0.0, -0.0, np.nan, -np.nan, 1.0])))
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert len(set(found)) == 3


def test_the_order_of_columns_counts() -> None:
    one, two = Column(np.array([1, 2])), Column(np.array([2, 1]))
    assert hashes(one, two)[0] != hashes(two, one)[0]


def test_a_million_distinct_rows_have_distinct_hashes() -> None:
    high, low = row_hashes([Column(np.arange(1_000_000))], 1_000_000)
    assert len(np.unique(high)) == len(np.unique(low)) == 1_000_000
