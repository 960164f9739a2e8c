"""Random joins of a stream with a stored table of several versions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.support.differential.engine_runs import SMALL_SEGMENTS

from mavstream_server.testing import ManualClock, ScriptedStream, ScriptedTable

STREAM = "id int, room string null, level int null, warm bool, x float null, seen timestamp null"
TABLE = "room string null, level int null, warm bool, x float, seen timestamp null, label string null, n int"
ROOMS = ["hall", "attic", "kitchen", "", "Küche", None]
KEYS = [["room"], ["level"], ["room", "level"], ["x"], ["warm"], ["seen", "x"], ["room", "level", "warm"]]
WHERE = [None, "l.id > r.n", "r.label IS NOT NULL", "length(r.label) > l.level", "l.warm AND r.n > 20"]
NODES = {"in": {"op": "source", "stream": "readings"}, "rooms": {"op": "table", "table": "rooms"}}

Row = tuple[Any, ...]


@dataclass
class TableJoinScript:
    """A join, and the rows and table versions that it reads, in order of arrival, at least 1 ns apart."""

    keys: list[str]
    where: str | None
    how: str
    events: list[tuple[int, str, list[Row]]] = field(default_factory=list)

    @classmethod
    def random(cls, random: Random, rows: int = 300) -> TableJoinScript:
        made = cls(random.choice(KEYS), random.choice(WHERE), random.choice(["inner", "left"]))
        now, id_ = 1_700_000_000_000_000_000, 0
        for _ in range(random.randint(2, 12)):
            now += random.randint(1, 3)
            if random.random() < 0.4:
                size = random.choice([0, 1, 5, 60])
                made.events.append((now, "table", [_table_row(random) for _ in range(size)]))
            else:
                part = [_stream_row(random, id_ + n) for n in range(random.randint(1, rows // 4))]
                id_ += len(part)
                made.events.append((now, "rows", part))
        return made

    @property
    def node(self) -> dict[str, Any]:
        compute = {"id": "l.id", "room": "l.room", "label": "r.label", "cap": "r.n", "both": "l.id + r.n"}
        return {
            "op": "join",
            "left": "in",
            "right": "rooms",
            "on": [[key, key] for key in self.keys],
            "how": self.how,
            "compute": compute,
            **({} if self.where is None else {"where": self.where}),
        }


def _key_cells(random: Random) -> Row:
    at = random.choice([None, 1_700_000_000_000_000, 5, -5])
    return random.choice(ROOMS), random.choice([None, 0, 1, 2, -(1 << 62)]), random.random() < 0.5, at


def _stream_row(random: Random, id_: int) -> Row:
    room, floor, warm, at = _key_cells(random)
    return id_, room, floor, warm, random.choice([None, 0.0, -0.0, 1.5, -2.25]), at


def _table_row(random: Random) -> Row:
    room, floor, warm, at = _key_cells(random)
    label = random.choice([None, "a", "bb", "ccc"])
    return room, floor, warm, random.choice([0.0, 1.5, 7.0]), at, label, random.randint(0, 100)


@contextmanager
def written(
    script: TableJoinScript, cuts: int, small: bool
) -> Iterator[tuple[ScriptedStream, ScriptedTable]]:
    """Write a script to files, the rows of each event in frames of random size."""
    with tempfile.TemporaryDirectory() as directory:
        clock, random = ManualClock(0), Random(cuts)
        options = SMALL_SEGMENTS if small else None
        stream = ScriptedStream(Path(directory), "readings", STREAM, clock, options=options)
        table = ScriptedTable(Path(directory) / "tables", "rooms", TABLE, clock)
        for at, kind, rows in script.events:
            clock.advance(nanoseconds=at - clock.now())
            if kind == "table":
                table.put(*rows)
            else:
                stream.rows(*rows, frame=random.choice([1, 7, len(rows)]))
        stream.complete()
        try:
            yield stream, table
        finally:
            stream.close()
            table.close()
