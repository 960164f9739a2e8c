"""Pulled results: page by page, in both encodings, also while the oldest rows are removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.services.result_log import SCHEMA, Answers, Query, fall_behind

from mavstream_protocol.instants import parse_instant
from mavstream_protocol.tuples import decode_stream, rows_of
from mavstream_protocol.wire.resources import ActualState, PulledResults
from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Column, Ints
from mavstream_server.log import LogDescription, LogWriter
from mavstream_server.log.format.provenance import encode_provenance, latest_time
from mavstream_server.results.row_metadata import with_metadata
from mavstream_server.results.service import MOST_PULLED, ResultService


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Answers]:
    with Answers(tmp_path, segment_bytes=64 << 10) as made:
        yield made


def pull(answers: Answers, after: int | None = None, limit: int = 1_000) -> PulledResults:
    return PulledResults.model_validate_json(answers.service.pull(answers.query, after, limit).json())


def test_pulling_page_by_page_gives_every_row_once(answers: Answers) -> None:
    for size in (1, 999, 1, 3_000, 6_500, 2):
        answers.answer(size)
    got: list[int] = []
    after: int | None = None
    while (part := pull(answers, after, 777)).rows:
        got += [row["n"] for row in part.rows]
        assert part.next == got[-1]
        after = part.next
    assert got == list(range(10_503))
    assert part.next == 10_502
    answers.answer(1)
    assert [row["n"] for row in pull(answers, after).rows] == [10_503]


def test_an_empty_pull_can_be_continued(answers: Answers) -> None:
    empty = pull(answers)
    assert (empty.rows, empty.next, empty.epoch, empty.gap) == ([], -1, 1, None)
    answers.answer(2)
    assert [row["n"] for row in pull(answers, empty.next).rows] == [0, 1]


def test_a_pull_returns_no_more_than_the_limit_and_the_maximum(answers: Answers) -> None:
    answers.answer(MOST_PULLED + 5)
    assert len(pull(answers, limit=3).rows) == 3
    assert len(pull(answers, limit=MOST_PULLED + 100).rows) == MOST_PULLED


def test_a_pull_reports_removed_rows_as_a_gap(answers: Answers) -> None:
    begin = fall_behind(answers)
    part = pull(answers, after=9, limit=5)
    assert part.gap == (10, begin)
    assert [row["n"] for row in part.rows] == list(range(begin, begin + 5))


def test_a_pull_continues_after_a_segment_that_grew_and_was_removed(answers: Answers) -> None:
    answers.answer(10)
    assert pull(answers).next == 9
    answers.reopen(segment_bytes=1 << 20)
    while answers.segments < 3:
        answers.answer(1_000)
    begin = answers.forget()
    part = pull(answers, after=9, limit=5)
    assert part.gap == (10, begin)
    assert [row["n"] for row in part.rows] == list(range(begin, begin + 5))


def test_a_pull_continues_after_rows_that_the_log_does_not_count_yet(answers: Answers) -> None:
    answers.answer(10)
    answers.answer(400, room="x" * 20_000)
    counted = answers.count_only(10)  # as when an engine crashes between writing and counting
    first = pull(answers, after=9, limit=100)
    assert [row["n"] for row in first.rows] == list(range(10, 110))
    second = pull(answers, first.next)
    answers.count_only(counted)
    third = pull(answers, second.next)
    rows = [row["n"] for part in (second, third) for row in part.rows]
    assert rows == list(range(110, 410))


def test_a_pull_ends_where_the_epoch_changes(answers: Answers) -> None:
    answers.answer(3)
    answers.restart()
    answers.answer(3)
    first = pull(answers)
    second = pull(answers, first.next)
    assert ([row["n"] for row in first.rows], first.epoch) == ([0, 1, 2], 1)
    assert ([row["n"] for row in second.rows], second.epoch) == ([3, 4, 5], 2)


def test_a_pull_as_arrow_has_the_same_rows(answers: Answers) -> None:
    answers.answer(2_000)
    answers.answer(1, room=None)
    pulled = answers.service.pull(answers.query, 9, 5_000)
    batch = decode_stream(SCHEMA, pulled.arrow())
    assert rows_of(batch) == json.loads(pulled.json())["rows"]
    empty = answers.service.pull(answers.query, 2_000)
    assert decode_stream(SCHEMA, empty.arrow()).num_rows == 0


def test_unused_logs_are_closed(tmp_path: Path) -> None:
    service = ResultService(tmp_path)
    first = service.of(Query(id="q-0"))
    for number in range(1, 200):
        service.of(Query(id=f"q-{number}"))
    assert service.of(Query(id="q-0")) is not first


def test_a_pull_tells_where_the_results_end(answers: Answers) -> None:
    answers.answer(5)
    nothing = pull(answers, limit=0)
    assert (nothing.rows, nothing.next, nothing.end, nothing.complete) == ([], -1, 5, False)
    answers.query.final = ActualState.FINISHED
    part = pull(answers, after=1, limit=2)
    assert (part.next, part.end, part.complete) == (3, 5, True)
    begin = fall_behind(answers)
    assert pull(answers, limit=0).next == begin - 1


def test_results_are_pulled_with_their_provenance(answers: Answers) -> None:
    writer = LogWriter(answers.path, LogDescription(SCHEMA))
    # The second row was late, and none of the second frame could have been.
    times = np.array([7_000_000, 4_000_000])
    late = traced(times, np.array([5, 6]) * 1_000, np.array([1_000_000, 6_000_000]))
    sure = traced(np.array([8_000_000]), np.array([7_000]), None)
    for batch in (late, sure):
        provenance = encode_provenance(batch, [0])
        writer.append(batch.columns, batch.size, 1, provenance=provenance, latest=latest_time(batch))
    pulled = answers.service.pull(answers.query, metadata=True)
    found = json.loads(pulled.json())["rows"]
    assert [row["_position"] for row in found] == [0, 1, 2]
    assert [micros(row["_time"]) for row in found] == [7_000_000, 4_000_000, 8_000_000]
    assert [micros(row["_arrival"]) for row in found] == [5, 6, 7]
    assert [micros(row["_watermark"]) for row in found] == [1_000_000, 6_000_000, None]
    assert rows_of(decode_stream(with_metadata(SCHEMA, "it"), pulled.arrow())) == found
    writer.close()


def traced(times: Ints, arrivals: Ints, watermarks: Ints | None) -> Batch:
    values = {"room": ["hall"] * len(times), "n": times.tolist(), "at": times.tolist()}
    columns = {field.name: Column.from_list(field.type, values[field.name]) for field in SCHEMA}
    return Batch(columns, len(times), arrivals, time=times, row_watermark=watermarks)


def micros(instant: str | None) -> int | None:
    return None if instant is None else parse_instant(instant)
