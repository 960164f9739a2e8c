"""A join with a stored table: each row finds what the table held when the row arrived."""

from pathlib import Path
from tempfile import TemporaryDirectory

from mavstream_server.testing import ManualClock, ScriptedStream, ScriptedTable, run_plan

PLAN = {
    "readings": {"op": "source", "stream": "readings"},
    "rooms": {"op": "table", "table": "rooms"},
    "checked": {
        "op": "join",
        "left": "readings",
        "right": "rooms",
        "on": [["room", "room"]],
        "how": "left",
        "compute": {"room": "l.room", "over": "l.temperature - r.threshold"},
    },
}

with TemporaryDirectory() as folder:
    clock = ManualClock()
    readings = ScriptedStream(Path(folder), "readings", "room string, temperature int", clock)
    rooms = ScriptedTable(Path(folder) / "tables", "rooms", "room string, threshold int", clock)

    rooms.put(("attic", 40), ("kitchen", 30))
    readings.rows(("attic", 45), ("cellar", 9))
    clock.advance(seconds=1)
    rooms.put(("attic", 50), ("cellar", 5))
    readings.rows(("attic", 45), ("cellar", 9))

    # Both versions are there before the query starts; a row still joins its own.
    query = run_plan(PLAN, "checked", [readings], tables=[rooms])
    for row in query.rows():
        print(row)
