"""Recent rows find exactly the pairs that a double loop finds, whatever was appended and expired before."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Column
from mavstream_server.operators.joins.recent_rows import RecentRows

Row = tuple[int, int, str | None]
"""Code, time and text."""


def batch_of(rows: list[Row]) -> tuple[Batch, np.ndarray]:
    times = np.array([time for _, time, _ in rows], dtype=np.int64)
    texts = Column.from_list(FieldType.STRING, [text for _, _, text in rows])
    batch = Batch({"text": texts}, len(rows), times, time=times)
    return batch, np.array([code for code, _, _ in rows], dtype=np.int64)


def held(recent: RecentRows) -> list[Row]:
    if not recent:
        return []
    rows = recent.rows
    assert rows.time is not None
    texts = rows.columns["text"].to_list(FieldType.STRING)
    return list(zip(recent.codes.tolist(), rows.time.tolist(), texts, strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_recent_rows_find_the_pairs_of_a_double_loop(seed: int) -> None:
    random = Random(seed)
    recent, expected, now = RecentRows(), list[Row](), 0
    for _ in range(40):
        now += random.randrange(20)
        rows: list[Row] = [
            (
                random.randrange(5),
                now + random.randrange(-10, 10),
                random.choice(["a", "b", "long text", None]),
            )
            for _ in range(random.randrange(1, 30))
        ]
        if random.random() < 0.3:
            since = now - random.randrange(60)
            recent.expire(since)
            assert [row for row in held(recent) if row[1] >= since] == [r for r in expected if r[1] >= since]
            expected = held(recent)
        asking, codes = batch_of(rows)
        earlier, later = random.randrange(20), random.randrange(20)
        pairs = [
            (i, j)
            for i, (code, time, _) in enumerate(rows)
            for j, (other, there, _) in enumerate(expected)
            if code == other and time - earlier <= there <= time + later
        ]
        assert asking.time is not None
        found = recent.partners(codes, asking.time, earlier, later) if recent else None
        assert pairs == ([] if found is None else list(zip(*(a.tolist() for a in found), strict=True)))
        recent.append(asking, codes)
        expected += rows
        assert held(recent) == expected
        assert (recent.earliest, recent.latest) == (min(r[1] for r in expected), max(r[1] for r in expected))


def test_rows_that_were_returned_never_change() -> None:
    recent = RecentRows()
    recent.append(*batch_of([(1, 1, "a"), (2, 2, "b")]))
    taken = recent.rows.take(np.array([0, 1]))
    recent.expire(5)
    recent.append(*batch_of([(3, 9, "c"), (4, 9, "c")]))
    assert taken.columns["text"].to_list(FieldType.STRING) == ["a", "b"]
    assert held(recent) == [(3, 9, "c"), (4, 9, "c")]


def test_codes_are_replaced() -> None:
    recent = RecentRows()
    recent.append(*batch_of([(1, 1, "a"), (3, 2, None)]))
    recent.recode(np.array([-1, 0, -1, 1]))
    assert recent.codes.tolist() == [0, 1]
