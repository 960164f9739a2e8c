"""Queries on a damaged stream: damaged rows are counted, and no window answers as if it had seen them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import MakeStream
from tests.support.damaged_files import flip, frame_offsets, segments

from mavstream_server.engine.reporting import query_metrics
from mavstream_server.testing import run_plan

SECOND = 1_000_000
COUNTED = {
    "in": {"op": "source", "stream": "readings"},
    "out": {
        "op": "aggregate",
        "input": "in",
        "window": {"kind": "tumbling", "size": "10s"},
        "compute": {"n": "count(*)", "last": "max(k)"},
    },
}
ALL = {
    "in": {"op": "source", "stream": "readings"},
    "out": {"op": "project", "input": "in", "compute": {"k": "k", "room": "room"}},
}


@pytest.mark.parametrize("damaged", [[25], [25, 26, 27], [0], [39]])
def test_rows_around_damage_are_answered_and_windows_with_lost_rows_are_not(
    tmp_path: Path, stream: MakeStream, damaged: list[int]
) -> None:
    readings = stream("readings", "ts timestamp, k int, room string", event_time="ts")
    for k in range(40):
        readings.rows((k * SECOND, k, f"room {k % 3}"))
    readings.complete()
    offsets = frame_offsets(tmp_path / "readings")
    for k in damaged:
        flip(segments(tmp_path / "readings")[0], offsets[k][1] + 13)
    run = run_plan(ALL, "out", [readings])
    assert run.rows() == [(k, f"room {k % 3}") for k in range(40) if k not in damaged]
    assert query_metrics(run.query, 0).counters["in"]["damaged"] == len(damaged)
    counted = run_plan(COUNTED, "out", [readings])
    assert [row[:2] for row in counted.rows()] == [
        (10, first + 9) for first in range(0, 40, 10) if not set(range(first, first + 10)) & set(damaged)
    ]
