"""Key codes: equal keys get equal codes, in order of first appearance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.columns.index import IntIndex
from mavstream_server.columns.keys import KeyCoder
from mavstream_server.columns.pieces import AT_ONCE, finished

INTS = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1), st.integers(0, 100_000))
VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType.INT: INTS,
    FieldType.TIMESTAMP: INTS,
    FieldType.BOOL: st.booleans(),
    FieldType.FLOAT: st.one_of(
        st.sampled_from([0.0, -0.0, 1.5]), st.floats(allow_nan=False, allow_infinity=False)
    ),
    FieldType.STRING: st.text(max_size=3),
}


class Reference:
    """A dict that gives the expected codes."""

    def __init__(self) -> None:
        self.codes: dict[Any, int] = {}

    def encode(self, keys: list[Any]) -> list[int]:
        return [self.codes.setdefault(key, len(self.codes)) for key in keys]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.lists(INTS, max_size=40), max_size=6))
def test_an_index_numbers_keys_in_order_of_appearance(batches: list[list[int]]) -> None:
    index, reference = IntIndex(), Reference()
    for keys in batches:
        assert index.encode(np.array(keys, dtype=np.int64)).tolist() == reference.encode(keys)
    assert index.keys.tolist() == list(reference.codes)
    again = finished(IntIndex.of(index.keys))
    assert again.encode(index.keys).tolist() == list(range(index.count))


def test_an_index_takes_both_ends_of_the_integers() -> None:
    index = IntIndex()
    first, last = -(1 << 63), (1 << 63) - 1
    assert index.encode(np.array([last])).tolist() == [0]
    assert index.encode(np.array([first])).tolist() == [1]
    assert index.encode(np.array([0, last, first])).tolist() == [2, 0, 1]
    assert index.keys.tolist() == [last, first, 0]


def test_an_index_falls_back_to_hashing_when_keys_are_scattered() -> None:
    index = IntIndex()
    assert index.encode(np.array([5, 6, 5])).tolist() == [0, 1, 0]
    assert index.encode(np.array([2**62, -(2**62), 6])).tolist() == [2, 3, 1]
    assert index.encode(np.array([5, 9, 9])).tolist() == [0, 4, 4]


@st.composite
def keyed_batches(draw: st.DrawFn) -> tuple[list[FieldType], list[list[list[Any]]]]:
    types = draw(st.lists(st.sampled_from(list(FieldType)), min_size=0, max_size=3))
    batches = []
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.integers(0, 15))
        batches.append(
            [draw(st.lists(st.none() | VALUES[t], min_size=size, max_size=size)) for t in types]
            or [[None] * size]
        )
    return types, batches


def columns_of(types: list[FieldType], batch: list[list[Any]]) -> list[Column]:
    return [Column.from_list(type_, values) for type_, values in zip(types, batch, strict=False)]


def rows_of(types: list[FieldType], columns: list[Column]) -> list[tuple[Any, ...]]:
    lists = [column.to_list(type_) for type_, column in zip(types, columns, strict=True)]
    return list(zip(*lists, strict=True))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(keyed_batches())
def test_equal_keys_have_equal_codes_and_codes_give_the_keys_back(case: Any) -> None:
    types, batches = case
    coder, seen = KeyCoder(types), {}
    for batch in batches:
        size = len(batch[0])
        codes = coder.encode(columns_of(types, batch), size).tolist()
        rows = list(zip(*batch, strict=True)) if types else [()] * size
        for code, row in zip(codes, rows, strict=True):
            assert seen.setdefault(row, code) == code
    assert len(set(seen.values())) == len(seen)
    assert all(code < coder.count for code in seen.values())
    if types:
        assert rows_of(types, coder.columns(np.array(list(seen.values()), dtype=np.int64))) == list(seen)


def compacted(coder: KeyCoder, live: Ints) -> Ints | None:
    """Run all steps of a compaction; returns the new codes by old code."""
    return finished(coder.compact(live))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(keyed_batches(), st.randoms(use_true_random=False))
def test_compaction_keeps_live_keys_and_their_order(case: Any, random: Any) -> None:
    types, batches = case
    coder = KeyCoder(types)
    codes = [coder.encode(columns_of(types, batch), len(batch[0])) for batch in batches]
    every = np.unique(np.concatenate(codes))
    live = np.array(sorted(random.sample(every.tolist(), len(every) // 2)), dtype=np.int64)
    before = rows_of(types, coder.columns(live)) if types else []
    mapping = compacted(coder, live)
    assert mapping is not None
    moved = mapping.take(live)
    assert (np.diff(moved) > 0).all()
    if types:
        assert rows_of(types, coder.columns(moved)) == before


@settings(max_examples=60, deadline=None, derandomize=True)
@given(keyed_batches())
def test_a_saved_coder_gives_the_same_codes(case: Any) -> None:
    types, batches = case
    coder, again = KeyCoder(types), KeyCoder(types)
    codes = [coder.encode(columns_of(types, batch), len(batch[0])).tolist() for batch in batches]
    again.load(coder.save())
    for batch, expected in zip(batches, codes, strict=True):
        assert again.encode(columns_of(types, batch), len(batch[0])).tolist() == expected


def test_a_returned_column_does_not_change_when_the_coder_continues() -> None:
    coder = KeyCoder([FieldType.STRING])
    codes = coder.encode([Column.from_list(FieldType.STRING, ["a", None, "b"])], 3)
    column = coder.columns(codes)[0]
    coder.encode([Column.from_list(FieldType.STRING, ["c", "a"])], 2)
    assert compacted(coder, codes[2:]) is not None
    coder.encode([Column.from_list(FieldType.STRING, ["z"])], 1)
    assert column.to_list(FieldType.STRING) == ["a", None, "b"]


@pytest.mark.parametrize("grow", [False, True])
def test_string_keys_follow_a_dictionary_that_grows(grow: bool) -> None:
    texts = Dictionary(["a", "b"])
    coder = KeyCoder([FieldType.STRING])
    first = coder.encode([Column(np.array([0, 1], dtype=np.int32), None, texts)], 2).tolist()
    if grow:
        texts.extend(f"t{number}" for number in range(50))
    second = coder.encode([Column(np.array([1, len(texts) - 1], dtype=np.int32), None, texts)], 2).tolist()
    assert second[0] == first[1]
    assert (second[1] in first) is not grow


def numbers_from(first: int, stop: int) -> list[Column]:
    """Return two key columns whose pairs are scattered."""
    numbers = np.arange(first, stop)
    return [Column(numbers), Column(numbers * 7 % 100_003)]


def test_keys_that_are_mostly_in_use_are_not_compacted() -> None:
    coder = KeyCoder([FieldType.INT])
    codes = coder.encode([Column(np.arange(5000))], 5000)
    assert coder.worth_compacting()
    assert compacted(coder, codes[:4000]) is None
    assert not coder.worth_compacting(), "until there are twice as many"
    assert coder.count == 5001


def test_a_compaction_moves_a_bounded_number_of_keys_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    coder = KeyCoder([FieldType.INT, FieldType.INT])
    codes = coder.encode(numbers_from(0, 50_000), 50_000)
    moved: list[int] = []
    encoding = KeyCoder.encoding

    def counting(self: KeyCoder, columns: Any, size: int) -> Any:
        moved.append(size)
        return encoding(self, columns, size)

    monkeypatch.setattr(KeyCoder, "encoding", counting)
    live = np.unique(codes)[::3]
    assert compacted(coder, live) is not None
    assert sum(moved) == len(live)
    assert max(moved) <= AT_ONCE


def test_scattered_pairs_are_not_indexed_again_as_they_become_many(monkeypatch: pytest.MonkeyPatch) -> None:
    indexed: list[int] = []
    of = IntIndex.of

    def counting(keys: Ints) -> Any:
        indexed.append(len(keys))
        return of(keys)

    monkeypatch.setattr(IntIndex, "of", counting)
    coder = KeyCoder([FieldType.INT, FieldType.INT])
    for first in range(0, 100_000, 1000):
        coder.encode(numbers_from(first, first + 1000), 1000)
    assert coder.count == 100_000
    assert indexed
    assert max(indexed) < 5000
