"""Joins with stored tables give the answers of DuckDB for all frame and train sizes and policies."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from tests.support.differential.engine_runs import CHOICES, SMALL_SEGMENTS, TRAINS, finish
from tests.support.scale import scaled

from mavstream_server.scheduling.registry import POLICIES
from mavstream_server.testing import ManualClock, ScriptedStream, ScriptedTable, run_plan

STREAM = "id int, room string null, level int null, warm bool, x float null, seen timestamp null"
TABLE = "room string null, level int null, warm bool, x float, seen timestamp null, label string null, n int"
ROOMS = ["hall", "attic", "kitchen", "", "Küche", None]
SQL_STREAM = "_arrival BIGINT, id BIGINT, room TEXT, level BIGINT, warm BOOL, x DOUBLE, seen BIGINT"
SQL_TABLE = SQL_STREAM.replace("_arrival BIGINT, id", "_from BIGINT, _to") + ", label TEXT, n BIGINT"
KEYS = [["room"], ["level"], ["room", "level"], ["x"], ["warm"], ["seen", "x"], ["room", "level", "warm"]]
WHERE = [None, "l.id > r.n", "r.label IS NOT NULL", "length(r.label) > l.level", "l.warm AND r.n > 20"]

Row = tuple[Any, ...]
LAST = (1 << 63) - 1


@dataclass
class Story:
    """Rows and versions of a table in the order in which they came, each a nanosecond or more apart."""

    keys: list[str]
    where: str | None
    how: str
    events: list[tuple[int, str, list[Row]]] = field(default_factory=list)

    @classmethod
    def random(cls, random: Random, rows: int = 300) -> Story:
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


def oracle(story: Story) -> Counter[Row]:
    """Join each row with the rows of the version whose time it arrived in."""
    versions = [(at, rows) for at, kind, rows in story.events if kind == "table"]
    ends = [at for at, _ in versions[1:]] + [LAST]
    spans = zip(versions, ends, strict=bool(versions))
    table = [(at, end, *row) for (at, rows), end in spans for row in rows]
    rows = [(at, *row) for at, kind, part in story.events if kind == "rows" for row in part]
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE l ({SQL_STREAM}); CREATE TABLE r ({SQL_TABLE})")
        for name, given in (("l", rows), ("r", table)):
            if given:
                marks = ", ".join("?" * len(given[0]))
                database.executemany(f"INSERT INTO {name} VALUES ({marks})", given)
        on = ["l._arrival >= r._from", "l._arrival < r._to", *(f"l.{key} = r.{key}" for key in story.keys)]
        on += [] if story.where is None else [story.where]
        join = f"{story.how} JOIN r ON {' AND '.join(f'({part})' for part in on)}"
        return Counter(database.execute(f"SELECT id, l.room, label, n, id + n FROM l {join}").fetchall())


@contextmanager
def written(story: Story, cuts: int, small: bool) -> Iterator[tuple[ScriptedStream, ScriptedTable]]:
    """Write a story to files, the rows of a moment in frames that are cut at random."""
    with tempfile.TemporaryDirectory() as directory:
        clock, random = ManualClock(0), Random(cuts)
        options = SMALL_SEGMENTS if small else None
        stream = ScriptedStream(Path(directory), "readings", STREAM, clock, options=options)
        table = ScriptedTable(Path(directory) / "tables", "rooms", TABLE, clock)
        for at, kind, rows in story.events:
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


NODES = {"in": {"op": "source", "stream": "readings"}, "rooms": {"op": "table", "table": "rooms"}}


FIRST = {"id": "l.id", "level": "l.level", "cap": "r.n"}


@pytest.mark.parametrize("seed", range(scaled(60, 1500)))
def test_a_join_gives_what_duckdb_gives(seed: int) -> None:
    random = Random(seed)
    story = Story.random(random)
    expected = oracle(story)
    for _ in range(3):
        policy, options = random.choice(CHOICES)
        with written(story, random.randrange(1000), random.random() < 0.3) as (stream, table):
            run = run_plan(
                {**NODES, "j": story.node},
                "j",
                [stream],
                tables=[table],
                policy=policy,
                policy_options=options,
                train=random.choice(TRAINS),
            )
            finish(run)
            assert Counter(run.answers()) == expected


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_policy_changes_the_answer_of_a_query_over_two_streams_and_two_joins(policy: str) -> None:
    random = Random(7)
    story = Story(["room"], None, "left")
    story.events = Story.random(random, 400).events
    nodes = {
        **NODES,
        "again": {"op": "source", "stream": "readings"},
        "both": {"op": "union", "inputs": ["in", "again"], "order": "time"},
        "first": {**story.node, "left": "both", "compute": FIRST},
        "second": {
            "op": "join",
            "left": "first",
            "right": "rooms",
            "on": [["level", "level"]],
            "compute": {"id": "l.id", "cap": "l.cap", "label": "r.label"},
        },
        "out": {
            "op": "aggregate",
            "input": "second",
            "window": {"kind": "tumbling", "size": 50},
            "compute": {"n": "count(*)", "first": "first(id)", "last": "last(label)", "caps": "sum(cap)"},
        },
    }
    answers = []
    for train, chosen in ((4096, "rr"), (5, policy), (64, policy)):
        with written(story, train, small=True) as (stream, table):
            run = run_plan(nodes, "out", [stream], tables=[table], policy=chosen, train=train)
            finish(run)
            answers.append(run.answers())
    assert len(answers[0]) > 5
    assert answers[0] == answers[1] == answers[2]
