"""Trials of queries on the logs of streams, as the process of a trial runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.columns.column import Column
from mavstream_server.engine.trial.job import TrialJob
from mavstream_server.engine.trial.process import run
from mavstream_server.log import LogDescription, LogWriter

N = Field("n", FieldType.INT)
PLAN = {
    "root": "out",
    "nodes": {
        "in": {"op": "source", "stream": "numbers"},
        "out": {"op": "select", "input": "in", "where": "n > 0"},
    },
}


def trial(folder: Path, stored: Schema) -> TrialJob:
    """Return the trial of a query over `n`, planned before its stream got the stored schema."""
    writer = LogWriter(folder / "numbers", LogDescription(stored))
    writer.append({each.name: Column(np.array([1, 0, 2])) for each in stored}, 3, 1)
    writer.close()
    plan = infer(Plan.parse(PLAN), {"numbers": StreamShape(Schema((N,)), None)})
    return TrialJob(plan, folder, folder, rows=10, limit=10, seconds=float("inf"), memory=1 << 20)


def test_a_trial_reads_the_last_rows(tmp_path: Path) -> None:
    assert run(trial(tmp_path, Schema((N,)))).rows == [{"n": 1}, {"n": 2}]


def test_a_field_may_have_been_added_since(tmp_path: Path) -> None:
    assert run(trial(tmp_path, Schema((N, Field("added", FieldType.INT, True))))).rows == [{"n": 1}, {"n": 2}]


def test_a_stream_that_was_created_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MavstreamError, match="stream 'numbers' has got another schema since"):
        run(trial(tmp_path, Schema((Field("other", FieldType.INT),))))
