"""Sorted runs find exactly the pairs that a double loop finds."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Column
from mavstream_server.columns.pieces import finished
from mavstream_server.operators.joins import sorted_run
from mavstream_server.operators.joins.sorted_run import SortedRun


def run_of(rows: list[tuple[int, int]]) -> SortedRun:
    """Make a run of (code, time) rows, numbered in a column."""
    codes = np.array([code for code, _ in rows], dtype=np.int64)
    times = np.array([time for _, time in rows], dtype=np.int64)
    numbers = Column(np.arange(len(rows)))
    return SortedRun.build(Batch({"n": numbers}, len(rows), times, time=times), codes)


def random_rows(random: Random, codes: int, times: int) -> list[tuple[int, int]]:
    rows = [(random.randrange(codes), random.randrange(times)) for _ in range(random.randrange(1, 60))]
    return rows if random.random() < 0.5 else sorted(rows, key=lambda row: row[1])


def found(here: SortedRun, asking: SortedRun, reach: tuple[int, int] | None) -> list[tuple[int, int]]:
    pairs = []
    for asked, there in filter(None, here.partners(asking, reach)):
        left, right = asking.rows.columns["n"].take(asked), here.rows.columns["n"].take(there)
        pairs += zip(left.values.tolist(), right.values.tolist(), strict=True)
    return sorted(pairs)


@pytest.mark.parametrize("seed", range(60))
def test_sorted_runs_find_the_pairs_of_a_double_loop(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    codes, times = random.choice([(3, 50), (1 << 40, 40), (70_000, 1 << 45), (2, 1 << 61)])
    if seed % 2:
        monkeypatch.setattr(sorted_run, "PAIRS_AT_ONCE", 7)
    here, asking = random_rows(random, codes, times), random_rows(random, codes, times)
    if codes > 100:
        asking += [here[0]]
    earlier, later = random.randrange(20), random.randrange(20)
    expected = [
        (i, j)
        for i, (code, time) in enumerate(asking)
        for j, (other, there) in enumerate(here)
        if code == other and time - earlier <= there <= time + later
    ]
    assert found(run_of(here), run_of(asking), (earlier, later)) == expected
    same = [(i, j) for i, (a, _) in enumerate(asking) for j, (b, _) in enumerate(here) if a == b]
    assert found(run_of(here), run_of(asking), None) == same


def test_merged_runs_stay_sorted() -> None:
    random = Random(1)
    for _ in range(30):
        older, newer = run_of(random_rows(random, 5, 100)), run_of(random_rows(random, 5, 100))
        merged = SortedRun.merge(older, newer)
        keys = list(zip(merged.codes.tolist(), merged.times.tolist(), strict=True))
        assert keys == sorted(keys)
        assert merged.size == older.size + newer.size


def test_old_rows_can_be_dropped() -> None:
    run = run_of([(1, 5), (2, 3), (1, 9)])
    kept = finished(run.since(5))
    assert kept is not None
    assert kept.times.tolist() == [5, 9]
    assert finished(run.since(10)) is None
