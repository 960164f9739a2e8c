"""A continuous query: rooms that are hot and dry, as Fahrenheit."""

from pathlib import Path
from tempfile import TemporaryDirectory

from mavstream_server.testing import ManualClock, ScriptedStream, run_plan

PLAN = {
    "in": {"op": "source", "stream": "readings"},
    "hot": {"op": "select", "input": "in", "where": "temperature > 30 AND humidity < 30"},
    "alarm": {
        "op": "project",
        "input": "hot",
        "compute": {"room": "room", "fahrenheit": "temperature * 1.8 + 32"},
    },
}

with TemporaryDirectory() as folder:
    fields = "ts timestamp, room string, temperature int, humidity int null"
    readings = ScriptedStream(Path(folder), "readings", fields, ManualClock(), event_time="ts")
    query = run_plan(PLAN, "alarm", [readings])

    readings.rows((1_000_000, "kitchen", 35, 20), (2_000_000, "hall", 21, 40))
    print(query.rows())

    readings.rows((3_000_000, "attic", 40, None), (4_000_000, "attic", 41, 10))
    print(query.rows())
