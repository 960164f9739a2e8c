"""Panes of rows that are in order are those of a division."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from mavstream_protocol.plans.windows import RowWindow, TimeWindow
from mavstream_server.columns.batch import Batch, concatenate_batches
from mavstream_server.operators.windows.index import WindowIndex


@pytest.mark.parametrize("seed", range(20))
def test_panes_of_ordered_times_are_those_of_any_times(seed: int) -> None:
    random = Random(seed)
    size = random.choice([10, 1000])
    begin = random.choice([None, -500, 12_345])
    hop = random.choice([size // 2, 2 * size])
    windows = WindowIndex(TimeWindow.model_construct(kind="hopping", size=size, hop=hop, begin=begin))
    rows = random.choice([1, 5, 700])
    reach = random.choice([3, 900, 2_000_000])
    times = np.array(sorted(random.randrange(-reach, reach) for _ in range(rows)), dtype=np.int64)
    ordered, any_ = windows.panes(times, ordered=True), windows.panes(times, ordered=False)
    assert ordered.numbers.tolist() == any_.numbers.tolist()
    assert (ordered.low, ordered.high) == (any_.low, any_.high)
    if ordered.counts is not None:
        counted = np.arange(ordered.low, ordered.high + 1).repeat(ordered.counts)
        assert counted.tolist() == ordered.numbers.tolist()


def test_many_rows_in_order_are_counted_by_pane() -> None:
    windows = WindowIndex(RowWindow(kind="tumbling", size=100))
    panes = windows.panes(np.arange(150, 1000), ordered=True)
    assert panes.counts is not None
    assert panes.counts.tolist() == [50, *[100] * 8]


def ordered_batch(times: list[int]) -> Batch:
    time = np.array(times, dtype=np.int64)
    return Batch({}, len(times), time, time=time, row_watermark=time)


def test_batches_in_order_stay_known_to_be_in_order_only_if_each_continues_the_other() -> None:
    forward = concatenate_batches([ordered_batch([1, 2]), ordered_batch([2, 5])])
    assert forward.row_watermark is forward.time
    back = concatenate_batches([ordered_batch([4, 5]), ordered_batch([2, 3])])
    assert back.row_watermark is not None
    assert back.row_watermark is not back.time
    assert back.row_watermark.tolist() == [4, 5, 2, 3]
