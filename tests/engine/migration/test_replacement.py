"""Replacement: each row is answered by the plan before the seam or by that behind it, and by no other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.plans.equivalent_plans import counting, readings_of, rows, typed
from tests.support.plans.rewriting_steps import IN, Nodes, select
from tests.support.scale import scaled

from mavstream_server.engine.migration.migration import MigrationRefused
from mavstream_server.engine.states import IllegalMove
from mavstream_server.testing import ManualClock, ScriptedStream, run_plan
from mavstream_server.testing.plans import PlanRun, Row

FIELDS = "ts timestamp, home int, x int"
SECOND = 1_000_000


def windowed(size: str, **window: Any) -> Nodes:
    return {"kind": "tumbling", "size": size, **window}


def by_rows(size: int) -> Nodes:
    window = {"kind": "tumbling", "size": size}
    return {**IN, "out": counting("in", window)}


HOPPING = {"kind": "hopping", "size": "12s", "hop": "3s"}
PROJECTED = {"op": "project", "input": "in", "compute": {"x": "x", "home": "home"}}
KEPT = {**IN, "a": counting("in")}
OTHER = {"other": {"op": "source", "stream": "other"}}
JOIN = {
    "op": "join",
    "left": "in",
    "right": "other",
    "on": [["home", "home"]],
    "compute": {"x": "l.x", "y": "r.x"},
}
PAIRS: dict[str, tuple[Nodes, Nodes]] = {
    "no state": (
        {**IN, "p": PROJECTED, "out": select("p", "x % 2 = 0")},
        {**IN, "p": PROJECTED, "out": select("p", "x % 3 = 0")},
    ),
    "other columns": (
        {**IN, "out": select("in", "x % 2 = 0")},
        {**IN, "p": PROJECTED, "out": select("p", "x % 3 = 0")},
    ),
    "other windows": (
        {**IN, "out": counting("in")},
        {**IN, "even": select("in", "x % 2 = 0"), "out": counting("even", windowed("4s"))},
    ),
    "hopping windows": (
        {**IN, "out": counting("in", HOPPING)},
        {**IN, "out": counting("in", windowed("5s"))},
    ),
    "partial windows": (
        {**IN, "out": counting("in")},
        {**IN, "out": counting("in", windowed("6s", partial=True))},
    ),
    "windows by rows": (by_rows(7), by_rows(5)),
    "joins": (
        {**IN, **OTHER, "out": {**JOIN, "within": "2s"}},
        {**IN, **OTHER, "big": select("in", "x > 20"), "out": {**JOIN, "left": "big", "within": "4s"}},
    ),
}


def generated(random: Random, count: int) -> list[Row]:
    """Return rows that are somewhat out of order."""
    times = [n * SECOND + random.randrange(3 * SECOND) for n in range(count)]
    return [(time, random.randrange(3), random.randrange(60)) for time in times]


def stream_of(
    path: Path, name: str, data: list[Row], random: Random, stop: int | None = None
) -> ScriptedStream:
    made = ScriptedStream(path, name, FIELDS, ManualClock(), event_time="ts", lateness=2 * SECOND)
    part, start = data[:stop], 0
    while start < len(part):
        size = random.randrange(1, 9)
        made.rows(*part[start : start + size])
        start += size
    if stop is None:
        made.complete()
    return made


def streams_of(
    path: Path, data: dict[str, list[Row]], random: Random, stops: dict[str, int] | None = None
) -> list[ScriptedStream]:
    return [
        stream_of(path, name, each, random, None if stops is None else stops[name])
        for name, each in data.items()
    ]


def seam_of(run: PlanRun, new: Nodes, streams: list[ScriptedStream]) -> tuple[int, dict[str, int]]:
    """Replace the plan and run on until that is done; returns the offset and the positions of the seam."""
    found: list[tuple[int, dict[str, int]]] = []

    def ended(failure: str | None) -> None:
        assert failure is None, (failure, run.query.reason)
        positions = {source.name: source.cursor.position for source in run.query.network.sources}
        named = {node.name: node.stream for node in run.query.request.plan.sources}
        found.append((run.sink.offset, {named[name]: position for name, position in positions.items()}))

    run.engine.replace("q", typed(new, "out", *streams), 1, ended)
    while not found:
        run.engine.step()
    return found[0]


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("seed", range(scaled(4, 60)))
def test_rows_before_the_seam_are_answered_by_the_old_plan_and_those_behind_it_by_the_new_one(
    tmp_path: Path, case: str, seed: int
) -> None:
    random, (old, new) = Random(f"{case} {seed}"), PAIRS[case]
    names = ["readings", *(["other"] if "other" in old else [])]
    data = {name: generated(random, 300) for name in names}
    streams = streams_of(tmp_path / "all", data, random)
    run = run_plan(old, "out", streams, train=random.randrange(1, 20))
    for _ in range(random.randrange(12)):
        run.engine.step()
    offset, positions = seam_of(run, new, streams)
    found = run.rows()
    before = run_plan(old, "out", streams_of(tmp_path / "before", data, random, positions)).rows()
    again = streams_of(tmp_path / "after", data, random)
    after = run_plan(new, "out", again, positions=positions).rows()
    assert Counter(found[:offset]) == Counter(before)
    assert Counter(found[offset:]) == Counter(after)


@pytest.mark.parametrize("seed", range(scaled(4, 60)))
def test_operators_that_are_the_same_keep_their_state(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    old = {**KEPT, "out": select("a", "n > 1")}
    new = {**KEPT, "out": select("a", "total % 2 = 0")}
    data = {"readings": generated(random, 300)}
    streams = streams_of(tmp_path / "all", data, random)
    run = run_plan(old, "out", streams, train=random.randrange(1, 20))
    for _ in range(random.randrange(12)):
        run.engine.step()
    held = run.query.network.operators["a"]
    offset, positions = seam_of(run, new, streams)
    found = run.rows()
    assert run.query.network.operators.get("a", held) is held
    early = streams_of(tmp_path / "before", data, random, positions)
    assert Counter(found[:offset]) == Counter(run_plan(old, "out", early).rows())
    known = Counter(run_plan(new, "out", streams_of(tmp_path / "known", data, random, positions)).rows())
    every = Counter(run_plan(new, "out", streams_of(tmp_path / "every", data, random)).rows())
    assert Counter(found[offset:]) == every - known, "windows that were open are answered whole"


def test_rows_of_windows_that_are_dropped_are_counted(stream: MakeStream) -> None:
    readings = readings_of(stream)
    run = run_plan({**IN, "out": counting("in")}, "out", [readings])
    readings.rows(*rows(0, 25))
    run.rows()
    seam_of(run, {**IN, "out": counting("in", windowed("5s"))}, [readings])
    readings.rows(*rows(25, 20))
    readings.complete()
    assert {row[3] // SECOND for row in run.rows()[6:]} == {25, 30, 35, 40}


def test_a_replacement_is_refused_or_given_up_and_the_query_goes_on(stream: MakeStream) -> None:
    readings = readings_of(stream)
    run = run_plan({**IN, "out": select("in", "x > 0")}, "out", [readings])
    other = {"source": IN["in"], "out": select("source", "x > 0")}
    failures: list[str | None] = []
    with pytest.raises(MigrationRefused, match="same sources, by name"):
        run.engine.replace("q", typed(other, "out", readings), 1, failures.append)
    readings.rows(*rows(0, 5))
    run.engine.step()
    new = typed({**IN, "out": select("in", "x > 2")}, "out", readings)
    run.engine.replace("q", new, 1, failures.append)
    run.engine.pause("q")
    assert failures == ["the query was paused"]
    with pytest.raises(IllegalMove, match="paused"):
        run.engine.replace("q", new, 1, failures.append)
    assert len(run.rows()) == 4
    run.engine.resume("q")
    run.engine.replace("q", new, 1, failures.append)
    run.engine.stop("q")
    assert failures[1:] == ["the query has ended"]
