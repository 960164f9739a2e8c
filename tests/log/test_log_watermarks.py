"""Watermarks are computed per row, independent of the boundaries of frames."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME
from mavstream_server.log.format.layout import FrameKind
from mavstream_server.log.watermarks import (
    ArrivalWatermarks,
    EventWatermarks,
    ProducerTime,
    row_watermarks,
)

JOIN, IDLE, END, COMPLETE = FrameKind.JOIN, FrameKind.IDLE, FrameKind.END, FrameKind.COMPLETE
EXTREMES = (BEGIN_OF_TIME, BEGIN_OF_TIME + 1, END_OF_TIME - 1, END_OF_TIME)

times = st.one_of(st.integers(0, 60), st.sampled_from(EXTREMES))
rows = st.tuples(st.just("row"), st.integers(0, 3), times)
marks = st.tuples(st.sampled_from([JOIN, IDLE, END]), st.integers(0, 3), st.just(0))
event_lists = st.lists(st.one_of(rows, rows, rows, marks), max_size=40)


def lowered(time: int, lateness: int) -> int:
    return max(time - lateness, BEGIN_OF_TIME)


def by_definition(events: list[tuple[object, int, int]], lateness: int) -> tuple[list[int], int]:
    """Compute watermarks from the definition: one row at a time, over all producers."""
    maxima: dict[int, int] = {}
    live: set[int] = set()
    watermark, largest = BEGIN_OF_TIME, BEGIN_OF_TIME
    ahead: list[int] = []
    for what, producer, time in events:
        if what == "row":
            ahead.append(watermark)
            maxima[producer] = max(maxima.get(producer, BEGIN_OF_TIME), time)
            largest = max(largest, time)
            live.add(producer)
        elif what is JOIN:
            maxima.setdefault(producer, BEGIN_OF_TIME)
            live.add(producer)
        elif producer in maxima:
            live.discard(producer)
            if not live:
                waived = what is END and largest > BEGIN_OF_TIME
                watermark = max(
                    watermark, min(largest + 1, END_OF_TIME) if waived else lowered(largest, lateness)
                )
        if live:
            watermark = max(watermark, min(lowered(maxima[p], lateness) for p in live))
    return ahead, watermark


def by_frames(
    events: list[tuple[object, int, int]], lateness: int, frame_sizes: list[int]
) -> tuple[list[int], int]:
    """Compute the same watermarks with consecutive rows of a producer in frames of the given sizes."""
    state = EventWatermarks(lateness)
    sizes = iter(frame_sizes * (len(events) + 1))
    ahead: list[int] = []
    for (what, producer), group in groupby(events, key=lambda item: item[:2]):
        pending = [time for _, _, time in group]
        if what != "row":
            for _ in pending:
                state.mark(FrameKind(what), producer, 0)
            continue
        while pending:
            size = next(sizes)
            frame, pending = np.array(pending[:size], dtype=np.int64), pending[size:]
            stamp = state.rows(producer, int(frame.max()))
            ahead += row_watermarks(frame, stamp.before, stamp.others, stamp.own, lateness).tolist()
            assert stamp.after == state.value
            assert max(stamp.before, min(stamp.others, stamp.own)) == stamp.before
    return ahead, state.value


@settings(max_examples=300, deadline=None)
@given(event_lists, st.integers(0, 20), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_watermarks_do_not_depend_on_frame_boundaries(
    events: list[tuple[object, int, int]], lateness: int, frame_sizes: list[int]
) -> None:
    assert by_frames(events, lateness, frame_sizes) == by_definition(events, lateness)


def test_one_producer_keeps_the_watermark_below_its_maximum_by_the_lateness() -> None:
    state = EventWatermarks(10)
    stamp = state.rows(1, 105)
    assert stamp == (BEGIN_OF_TIME, END_OF_TIME, BEGIN_OF_TIME, 95, BEGIN_OF_TIME)
    assert row_watermarks(np.array([100, 105, 90]), *stamp[:3], 10).tolist() == [BEGIN_OF_TIME, 90, 95]
    assert state.rows(1, 90) == (95, END_OF_TIME, 95, 95, 105)


def test_the_slowest_live_producer_holds_the_watermark() -> None:
    state = EventWatermarks(0)
    state.rows(1, 100)
    assert state.rows(2, 50).after == 100  # too late to hold back the watermark, which never decreases
    assert state.rows(1, 200).after == 100
    assert state.rows(2, 150).after == 150
    assert state.mark(IDLE, 2, 0).after == 200
    assert state.rows(1, 300).after == 300
    assert state.rows(2, 250).after == 300  # live again, and it counts again
    assert state.rows(1, 400).after == 300


def test_a_producer_that_joined_holds_the_watermark_before_its_first_row() -> None:
    state = EventWatermarks(0)
    state.mark(JOIN, 1, 0)
    state.mark(JOIN, 2, 0)
    assert state.rows(1, 100).after == BEGIN_OF_TIME
    assert state.rows(2, 80).after == 80


def test_after_the_last_live_producer_ended_no_lateness_is_subtracted() -> None:
    state = EventWatermarks(10)
    state.rows(1, 100)
    state.rows(2, 300)
    assert state.mark(END, 2, 0).after == 90
    assert state.mark(END, 1, 0).after == 301


def test_an_idle_producer_advances_the_watermark_no_further_than_lateness_allows() -> None:
    orders = ((1, 2), (2, 1))
    for order in orders:
        state = EventWatermarks(10)
        state.rows(1, 300)
        state.rows(2, 100)
        for producer in order:
            state.mark(IDLE, producer, 0)
        assert state.value == 290


def test_marks_of_unknown_producers_and_clock_marks_do_not_move_event_time() -> None:
    state = EventWatermarks(10)
    state.rows(1, 100)
    state.mark(IDLE, 1, 0)
    assert state.mark(END, 7, 0).after == 90
    assert state.mark(FrameKind.CLOCK, 0, 10**9).after == 90
    assert state.mark(FrameKind.WATERMARK, 0, 95).after == 95
    assert state.mark(FrameKind.WATERMARK, 0, 40).after == 95


@pytest.mark.parametrize("state", [EventWatermarks(5), ArrivalWatermarks()])
def test_completion_moves_the_watermark_to_the_end_of_time(
    state: EventWatermarks | ArrivalWatermarks,
) -> None:
    state.rows(1, 100)
    assert state.mark(COMPLETE, 0, 0).after == END_OF_TIME


def test_arrival_time_is_moved_by_rows_and_clocks_only() -> None:
    state = ArrivalWatermarks()
    assert state.rows(1, 100) == (BEGIN_OF_TIME, END_OF_TIME, BEGIN_OF_TIME, 100, BEGIN_OF_TIME)
    assert state.mark(END, 1, 0).after == 100
    assert state.mark(IDLE, 1, 0).after == 100
    assert state.mark(FrameKind.CLOCK, 0, 170).after == 170
    assert state.rows(2, 180).max_before == 100


def test_a_restored_state_continues_where_it_was_saved() -> None:
    state = EventWatermarks(10)
    state.rows(1, 100)
    state.rows(2, 40)
    state.mark(IDLE, 2, 0)
    copy = EventWatermarks(10)
    copy.restore(state.value, state.max_time, state.producers())
    assert copy.producers() == [ProducerTime(1, 100, True), ProducerTime(2, 40, False)]
    assert copy.rows(2, 50) == state.rows(2, 50)
    assert copy.rows(1, 500) == state.rows(1, 500)


def test_only_producers_that_are_not_live_are_removed() -> None:
    state = EventWatermarks(0)
    state.rows(1, 100)
    state.rows(2, 100)
    state.mark(END, 2, 0)
    state.forget([1, 2])
    assert [item.producer for item in state.producers()] == [1]


def test_the_least_of_a_thousand_producers_is_found() -> None:
    state = EventWatermarks(0)
    for producer in range(1000):
        state.rows(producer, producer)
    assert state.rows(0, 5000).after == 1
    for producer in range(1000):
        state.rows(producer, 2000 + producer)
    assert state.value == 2001
