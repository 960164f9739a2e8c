"""Windows: an average per room and second, answered when the watermark passes the window's end."""

from pathlib import Path
from tempfile import TemporaryDirectory

from mavstream_server.testing import ManualClock, ScriptedStream, run_plan

PLAN = {
    "in": {"op": "source", "stream": "readings"},
    "mean": {
        "op": "aggregate",
        "input": "in",
        "by": ["room"],
        "window": {"kind": "tumbling", "size": "1s"},
        "compute": {"n": "count(*)", "mean": "avg(temperature)"},
    },
}

with TemporaryDirectory() as folder:
    readings = ScriptedStream(
        Path(folder),
        "readings",
        "ts timestamp, room string, temperature int",
        ManualClock(),
        event_time="ts",
        lateness=200_000,
    )
    query = run_plan(PLAN, "mean", [readings])

    readings.rows((100_000, "hall", 20), (700_000, "attic", 30), (1_100_000, "hall", 22))
    print("watermark 0.9 s:", query.rows())

    readings.rows((950_000, "hall", 24), (1_300_000, "attic", 31))
    print("watermark 1.1 s:", query.rows())

    readings.rows((400_000, "hall", 99))
    query.rows()
    print("late rows:", query.query.counters)
