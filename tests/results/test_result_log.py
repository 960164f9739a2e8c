"""Answers in a result log: offsets, strings, cursors that resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import MakeStream

from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sinks import ResultLogSink
from mavstream_server.engine.snapshot import SnapshotMismatch
from mavstream_server.log import LogDescription, LogReader, LogWriter
from mavstream_server.testing import ManualClock, run_plan

HOT = {
    "in": {"op": "source", "stream": "readings"},
    "hot": {"op": "select", "input": "in", "where": "temp > 20"},
    "out": {"op": "project", "input": "hot", "compute": {"room": "upper(room)", "temp": "temp"}},
}


def test_a_result_log_keeps_answers_and_a_cursor_resumes_at_an_offset(
    tmp_path: Path, stream: MakeStream, clock: ManualClock
) -> None:
    readings = stream("readings", "room string null, temp int")
    plan = run_plan(HOT, "out", [readings]).query.request.plan
    engine = Engine(clock)
    engine.attach("readings", readings.reader)
    with LogWriter(tmp_path / "results", LogDescription(plan.schema)) as writer:
        engine.start(QueryRequest("q", plan), ResultLogSink(writer, plan.schema.names))
        for number in range(10):
            readings.rows(("hall", 30 + number), (None, 40 + number), ("attic", 5))
            engine.run()
        results = LogReader(tmp_path / "results")
        assert results.end == 20
        rows = []
        cursor = results.cursor(15)
        while (step := cursor.next()) is not None:
            frame, start = step
            lists = [frame.column(f.name).to_list(f.type)[start:] for f in plan.schema]
            rows += zip(*lists, strict=True)
        assert rows == [(None, 47), ("HALL", 38), (None, 48), ("HALL", 39), (None, 49)]


def test_rows_stored_since_a_snapshot_are_not_stored_again(
    tmp_path: Path, stream: MakeStream, clock: ManualClock
) -> None:
    readings = stream("readings", "room string null, temp int")
    run = run_plan(HOT, "out", [readings], clock=clock)
    saved, plan = run.engine.snapshot("q"), run.query.request.plan
    with LogWriter(tmp_path / "results", LogDescription(plan.schema)) as writer:
        sink = ResultLogSink(writer, plan.schema.names)
        first = Engine(clock)
        first.attach("readings", readings.reader)
        first.start(QueryRequest("q", plan, earliest=True), sink)
        readings.rows(("hall", 30))
        first.run()
        assert sink.offset == 1
        second = Engine(clock)
        second.attach("readings", readings.reader)
        second.start(QueryRequest("q", plan), sink, saved)
        readings.rows(("hall", 31))
        second.run()
        assert sink.offset == 2


def test_a_snapshot_after_the_end_of_the_result_log_is_refused(
    tmp_path: Path, stream: MakeStream, clock: ManualClock
) -> None:
    readings = stream("readings", "room string null, temp int")
    readings.rows(("hall", 30))
    run = run_plan(HOT, "out", [readings], clock=clock)
    assert run.rows() == [("HALL", 30)]
    saved, plan = run.engine.snapshot("q"), run.query.request.plan
    with LogWriter(tmp_path / "results", LogDescription(plan.schema)) as writer:
        engine = Engine(clock)
        engine.attach("readings", readings.reader)
        with pytest.raises(SnapshotMismatch, match="has rows 0 to 0, the snapshot goes on at 1"):
            engine.start(QueryRequest("q", plan), ResultLogSink(writer, plan.schema.names), saved)
