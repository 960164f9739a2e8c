"""Result logs of an engine: what retention removes from them, and when."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Column
from mavstream_server.engine.process.messages import StartQuery
from mavstream_server.engine.process.result_logs import ResultLogs
from mavstream_server.log import LogReader
from mavstream_server.testing.streams import parse_fields

SECOND = 1_000_000_000
ROWS = 4_000


def test_a_log_that_checkpoints_held_is_trimmed_when_they_move_on(tmp_path: Path) -> None:
    shape = StreamShape(parse_fields("x int"))
    plan = infer(Plan.parse({"root": "in", "nodes": {"in": {"op": "source", "stream": "s"}}}), {"s": shape})
    logs = ResultLogs(tmp_path, max_bytes=64 << 10, max_age_ns=3600 * SECOND)
    sink = logs.open(StartQuery("q", plan))
    values = np.arange(ROWS)
    for _ in range(8):
        sink.append(Batch({"x": Column(values)}, ROWS, values), 1, ())
    reader = LogReader(tmp_path / "q")
    logs.trim(2 * SECOND, lambda _: 0)
    assert reader.begin == 0
    assert not logs.settled, "it has more than it may, and nothing needs to grow for another try"
    logs.trim(4 * SECOND, lambda _: 8 * ROWS)
    assert reader.begin > 4 * ROWS
    assert logs.settled
    reader.close()
    logs.close_all()
