"""Random load shedding: dropped rows depend only on their positions, and are recorded."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import MakeStream
from tests.support.engine.shed_streams import kept, numbers, shedder

from mavstream_server.engine.reporting import query_metrics
from mavstream_server.operators.shedding.intervals import SheddingInterval
from mavstream_server.operators.shedding.shedder import BLOCK
from mavstream_server.testing import ManualClock, ScriptedStream, run_plan

ROWS = 20 * BLOCK
IN = {"in": {"op": "source", "stream": "numbers"}}


@pytest.fixture
def rows(stream: MakeStream) -> ScriptedStream:
    return numbers(stream, np.zeros(ROWS))


@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 0.99, 1.0])
def test_no_block_loses_more_than_the_share(rows: ScriptedStream, share: float) -> None:
    stayed = np.bincount(kept(shedder(share), rows) // BLOCK, minlength=20)
    assert (BLOCK - stayed == int(share * BLOCK)).all()


def test_no_block_loses_more_than_the_largest_share_that_was_in_force(rows: ScriptedStream) -> None:
    sheds, random, stayed = shedder(0.1), np.random.default_rng(3), []
    for start in range(0, ROWS, 512):
        sheds.set(random.choice([0.1, 0.03, 0.2]))
        stayed.append(kept(sheds, rows, start=start, stop=start + 512))
    lost = BLOCK - np.bincount(np.concatenate(stayed) // BLOCK, minlength=20)
    assert lost.max() <= int(0.2 * BLOCK)
    assert lost.min() > 0


def test_rows_are_spread_evenly(rows: ScriptedStream) -> None:
    dropped = np.setdiff1d(np.arange(ROWS), kept(shedder(0.2), rows))
    per_thousand = np.bincount(dropped // 1000)[:-1]
    assert per_thousand.min() > 140
    assert per_thousand.max() < 260


def test_the_dropped_rows_do_not_depend_on_batch_boundaries(rows: ScriptedStream) -> None:
    whole = kept(shedder(0.3), rows)
    parts = kept(shedder(0.3), rows, [1, 2, 500, 501, BLOCK, 3 * BLOCK - 1, 70_000])
    assert (whole == parts).all()


def test_a_larger_share_drops_the_rows_of_a_smaller_one_too(rows: ScriptedStream) -> None:
    few, many = (set(kept(shedder(share), rows).tolist()) for share in (0.5, 0.1))
    assert few < many


def test_streams_drop_rows_at_different_positions(rows: ScriptedStream) -> None:
    one, other = (kept(shedder(0.5, name=name), rows) for name in ("readings", "doors"))
    assert len(np.intersect1d(one, other)) == pytest.approx(ROWS / 4, rel=0.05)


@pytest.mark.parametrize("share", [1.5, -0.1, float("nan")])
def test_a_share_outside_of_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=f"from 0 to 1, got {share}"):
        shedder(share)


def test_a_query_reports_when_it_dropped_rows_and_how_many(stream: MakeStream, clock: ManualClock) -> None:
    rows = stream("numbers", "x float null, k int")
    run = run_plan(IN, "in", [rows])
    (source,) = run.query.network.sources
    arrivals = []
    for share in (0.0, 0.25, 0.25, 0.5, 0.0, 0.25):
        clock.advance(seconds=1)
        arrivals.append(clock.now())
        source.shed(share)
        rows.columns({"x": [0.0] * 1000, "k": [0] * 1000})
        run.engine.run()
    stats = query_metrics(run.query, 0)
    assert [interval[:5] for interval in stats.shedding_intervals] == [
        ("numbers", 0.25, arrivals[1], arrivals[2], 2000),
        ("numbers", 0.5, arrivals[3], arrivals[3], 1000),
        ("numbers", 0.25, arrivals[5], arrivals[5], 1000),
    ]
    assert [interval.shed for interval in stats.shedding_intervals] == pytest.approx([500, 500, 250], rel=0.2)
    lost = sum(interval.shed for interval in stats.shedding_intervals)
    assert stats.counters["in"]["shed"] == lost == 6000 - stats.rows_out

    run.engine.stop("q")
    assert query_metrics(run.query, 0).shedding_intervals == stats.shedding_intervals


def test_a_share_under_which_no_row_was_read_is_not_recorded(stream: MakeStream) -> None:
    run = run_plan(IN, "in", [numbers(stream, np.zeros(10))])
    (source,) = run.query.network.sources
    for share in (0.5, 0.0, 0.25):
        source.shed(share)
    run.engine.run()
    assert [interval.share for interval in run.query.shedding_intervals] == [0.25]


def test_the_record_is_bounded(stream: MakeStream) -> None:
    rows = numbers(stream, np.zeros(200))
    sheds = shedder(0.5)
    for start in range(100):
        sheds.set(0.5 + start % 2 / 4)
        kept(sheds, rows, start=start, stop=start + 1)
    assert len(sheds.record.intervals) == 32
    assert isinstance(sheds.record.intervals[0], SheddingInterval)


def test_shedding_continues_after_a_restore(stream: MakeStream) -> None:
    rows = numbers(stream, np.zeros(3 * BLOCK))
    rows.complete()
    run = run_plan(IN, "in", [rows], train=100)
    (source,) = run.query.network.sources
    source.shed(0.3)
    run.engine.run(40)
    saved, before = run.engine.snapshot("q"), run.answers()
    again = run_plan(IN, "in", [rows], train=4096, saved=saved)
    assert [row[1] for row in before + again.rows()] == kept(shedder(0.3), rows).tolist()
    (interval,) = again.query.shedding_intervals
    assert (interval.seen, interval.shed) == (3 * BLOCK, 3 * int(0.3 * BLOCK))
