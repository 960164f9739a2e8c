"""A join: doors that open within half a second of a hot reading in the same home."""

from pathlib import Path
from tempfile import TemporaryDirectory

from mavstream_server.testing import ManualClock, ScriptedStream, run_plan

PLAN = {
    "readings": {"op": "source", "stream": "readings"},
    "hot": {"op": "select", "input": "readings", "where": "temperature > 30"},
    "doors": {"op": "source", "stream": "doors"},
    "pairs": {
        "op": "join",
        "left": "hot",
        "right": "doors",
        "on": [["home", "home"]],
        "within": "500ms",
        "compute": {"home": "l.home", "temperature": "l.temperature", "door": "r.door"},
    },
}

with TemporaryDirectory() as folder:
    clock = ManualClock()
    readings = ScriptedStream(
        Path(folder), "readings", "ts timestamp, home int, temperature int", clock, event_time="ts"
    )
    doors = ScriptedStream(
        Path(folder), "doors", "ts timestamp, home int, door string", clock, event_time="ts"
    )
    query = run_plan(PLAN, "pairs", [readings, doors])

    readings.rows((1_000_000, 1, 35), (1_100_000, 2, 36), (1_200_000, 1, 20))
    doors.rows((1_300_000, 1, "front"), (1_400_000, 2, "back"), (1_700_000, 2, "front"))
    print(query.rows())
    print("bytes waiting for partners:", query.query.memory.state > 0)

    readings.rows((9_000_000, 3, 0))
    doors.rows((9_000_000, 3, "front"))
    query.rows()
    query.engine.stop("q")
    print("after the stop:", query.query.memory.resident)
