"""Replay strikes off what is stored, as often as it is stored, whatever the order and the batches."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Column
from mavstream_server.engine.checkpoints.replay import Replay

VALUES = st.lists(st.integers(0, 5), max_size=40)


def batch(values: list[int]) -> Batch:
    return Batch(
        {"x": Column(np.array(values, dtype=np.int64))}, len(values), np.zeros(len(values), np.int64)
    )


def replay_of(values: list[int]) -> Replay:
    return Replay(("x",), [([Column(np.array(values, dtype=np.int64))], len(values))])


@given(VALUES, st.lists(VALUES, max_size=5))
def test_what_remains_is_the_difference_of_the_multisets(stored: list[int], emitted: list[list[int]]) -> None:
    replay, found = replay_of(stored), []
    for values in emitted:
        if values:
            found += replay.unrepeated(batch(values)).columns["x"].values.tolist()
    everything = Counter(value for values in emitted for value in values)
    assert Counter(found) == everything - Counter(stored)
    assert replay.remaining == (Counter(stored) - everything).total()
    assert replay.rows == (Counter(stored) & everything).total()


def test_rows_that_are_not_struck_off_stay_in_order() -> None:
    replay = replay_of([2, 4])
    assert replay.unrepeated(batch([5, 4, 3, 2, 1])).columns["x"].values.tolist() == [5, 3, 1]
    assert replay.remaining == 0
