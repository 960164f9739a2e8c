"""Columns, dictionaries and batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.batch import Batch, Mark, concatenate_batches, mark_only
from mavstream_server.columns.column import Column, both_valid, concatenate, recode
from mavstream_server.columns.dictionary import Dictionary

TEXTS = st.lists(st.one_of(st.none(), st.sampled_from("abcde")), max_size=8)


def test_a_dictionary_gives_each_text_one_code_for_good() -> None:
    dictionary = Dictionary(["a", "b"])
    assert [dictionary.add(text) for text in ("b", "c", "a", "c")] == [1, 2, 0, 2]
    dictionary.extend(["d"])
    assert (dictionary.code("d"), dictionary.code("e"), len(dictionary)) == (3, -1, 4)
    assert dictionary.objects().tolist() == ["a", "b", "c", "d"]


def test_a_memo_is_computed_once_per_text() -> None:
    calls: list[list[str]] = []

    def lengths(texts: list[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        calls.append(list(texts))
        return np.array([len(text) for text in texts])

    dictionary = Dictionary(["a", "bb"])
    dictionary.memo("length", lengths)
    dictionary.add("ccc")
    assert dictionary.memo("length", lengths).tolist() == [1, 2, 3]
    assert dictionary.memo("length", lengths).tolist() == [1, 2, 3]
    assert calls == [["a", "bb"], ["ccc"]]


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_strings_of_several_dictionaries_are_joined(lists: list[list[str | None]]) -> None:
    columns = [Column.from_list(FieldType.STRING, values) for values in lists]
    joined = concatenate(columns).to_list(FieldType.STRING)
    assert joined == [value for values in lists for value in values]


def test_recoding_adds_only_the_texts_in_use() -> None:
    column = Column.from_list(FieldType.STRING, ["a", None, "b", "a"]).take(np.array([1, 2]))
    target = Dictionary(["x"])
    assert recode(column, target)[1] == 1
    assert target.values == ["x", "b"]


def test_columns_are_taken_and_sliced_with_their_nulls() -> None:
    column = Column.from_list(FieldType.INT, [1, None, 3, None])
    assert column.take(np.array([3, 0])).to_list(FieldType.INT) == [None, 1]
    assert column.slice(1, 3).to_list(FieldType.INT) == [None, 3]
    assert both_valid(column.valid, None) is column.valid
    assert column.nbytes == 4 * 9


def test_batches_are_split_and_joined_around_their_marks() -> None:
    def batch(start: int, stop: int, mark: Mark | None = None) -> Batch:
        rows = np.arange(start, stop)
        return Batch({"n": Column(rows)}, stop - start, rows, time=rows, position=rows, mark=mark)

    whole = batch(0, 5, Mark(watermark=7))
    head, tail = whole.split(2)
    assert (len(head), head.mark, len(tail), tail.mark) == (2, None, 3, Mark(watermark=7))
    joined = concatenate_batches([head, tail])
    assert joined.columns["n"].values.tolist() == list(range(5))
    assert joined.mark == whole.mark
    assert joined.row_watermark is None
    assert whole.take(np.array([4, 1])).arrival.tolist() == [4, 1]
    assert whole.nbytes == 4 * 40
    assert len(mark_only(Mark(end=True))) == 0
