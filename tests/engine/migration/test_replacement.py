"""Replacement: each row is answered by the plan before the seam or by that behind it, and by no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.engine.seam_sink import SeamSink
from tests.support.plans.equivalent_plans import counting, readings_of, rows, typed
from tests.support.plans.rewriting_steps import IN, Nodes, select
from tests.support.scale import scaled

from mavstream_protocol.queries import OnError
from mavstream_server.engine.errors import UnknownObject
from mavstream_server.engine.migration.replacement import NewPlan, Replaced
from mavstream_server.engine.states import IllegalMove, QueryState
from mavstream_server.log import LogOptions
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


def again(below: str, size: str, column: str = "n") -> dict[str, Any]:
    """Return an aggregate over the answers of another operator."""
    compute = {"count": "count()", "sum": f"sum({column})"}
    return {"op": "aggregate", "input": below, "window": windowed(size), "compute": compute}


BEGINS_ANEW = {"windows by rows"}
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
    "hopping to tumbling": (
        {**IN, "out": counting("in", HOPPING)},
        {**IN, "out": counting("in", windowed("30s"))},
    ),
    "windows of windows": (
        {**IN, "out": select("in", "x > 3")},
        {**IN, "a": counting("in", windowed("4s")), "out": again("a", "20s")},
    ),
    "windows by rows": (by_rows(7), by_rows(5)),
    "another stream": (
        {**IN, "out": counting("in")},
        {"in": OTHER["other"], "out": counting("in", windowed("8s"))},
    ),
    "another stream without state": (
        {**IN, "out": select("in", "x > 10")},
        {"in": OTHER["other"], "out": select("in", "x > 20")},
    ),
    "another name of the source": (
        {**IN, "out": counting("in")},
        {"renamed": IN["in"], "out": counting("renamed", windowed("7s"))},
    ),
    "a join added": (
        {**IN, "out": select("in", "x > 10")},
        {**IN, **OTHER, "out": {**JOIN, "within": "3s"}},
    ),
    "a join in windows added": (
        {**IN, "out": counting("in")},
        {**IN, **OTHER, "out": {**JOIN, "window": windowed("5s")}},
    ),
    "a join removed": (
        {**IN, **OTHER, "out": {**JOIN, "within": "2s"}},
        {"other": OTHER["other"], "out": counting("other")},
    ),
    "windows above a join": (
        {**IN, **OTHER, "j": {**JOIN, "within": "2s"}, "out": again("j", "5s", "x")},
        {**IN, **OTHER, "j": {**JOIN, "within": "2s"}, "out": again("j", "9s", "y")},
    ),
    "a union": (
        {**IN, "out": counting("in")},
        {
            **IN,
            **OTHER,
            "u": {"op": "union", "inputs": ["in", "other"]},
            "out": counting("u", windowed("6s")),
        },
    ),
    "joins": (
        {**IN, **OTHER, "out": {**JOIN, "within": "2s"}},
        {**IN, **OTHER, "big": select("in", "x > 20"), "out": {**JOIN, "left": "big", "within": "4s"}},
    ),
}


_OPEN: list[ScriptedStream] = []


@pytest.fixture(autouse=True)
def closed_streams() -> Iterator[None]:
    """Close the streams of a test: those of all cases would be more than a process may map."""
    yield
    while _OPEN:
        made = _OPEN.pop()
        made.close()
        made.reader.close()


def generated(random: Random, count: int) -> list[Row]:
    """Return rows that are somewhat out of order."""
    times = [n * SECOND + random.randrange(3 * SECOND) for n in range(count)]
    return [(time, random.randrange(3), random.randrange(60)) for time in times]


def stream_of(
    path: Path, name: str, data: list[Row], random: Random, stop: int | None = None
) -> ScriptedStream:
    made = ScriptedStream(path, name, FIELDS, ManualClock(), event_time="ts", lateness=2 * SECOND)
    _OPEN.append(made)
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


def replaced(
    run: PlanRun, new: Nodes, streams: list[ScriptedStream], **changes: Any
) -> tuple[Replaced, dict[str, int]]:
    """Replace the plan and run on until that is done; returns the positions at the seam, too."""
    found: list[Replaced | str] = []
    sink = run.sink
    assert isinstance(sink, SeamSink)
    sink.watch(run)
    version = run.query.migrations.version + 1
    run.engine.replace("q", NewPlan(typed(new, "out", *streams), **changes), version, found.append)
    while not found:
        run.engine.step()
    assert isinstance(found[0], Replaced), found
    # The old plan has not read the streams that the new one adds.
    return found[0], {stream.name: stream.reader.end for stream in streams} | sink.seam


def started(
    tmp_path: Path, case: str, seed: int
) -> tuple[Random, dict[str, list[Row]], list[ScriptedStream], PlanRun]:
    """Return a query with the old plan of a case that has run for a while."""
    random = Random(f"{case} {seed}")
    data = {name: generated(random, 300) for name in ("readings", "other")}
    streams = streams_of(tmp_path / "all", data, random, dict.fromkeys(data, 300))
    run = run_plan(PAIRS[case][0], "out", streams, train=random.randrange(1, 20), sink=SeamSink())
    for _ in range(random.randrange(60)):
        run.engine.step()
    return random, data, streams, run


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("seed", range(scaled(4, 60)))
def test_the_new_plan_goes_on_as_if_it_had_always_run(tmp_path: Path, case: str, seed: int) -> None:
    (old, new), (random, data, streams, run) = PAIRS[case], started(tmp_path, case, seed)
    outcome, seam = replaced(run, new, streams)
    offset = outcome.offset
    for each in streams:
        each.complete()
    found = run.rows()

    def answers(plan: Nodes, name: str, **options: Any) -> Counter[Row]:
        stops = seam if name in ("before", "known") else None
        return Counter(
            run_plan(plan, "out", streams_of(tmp_path / name, data, random, stops), **options).rows()
        )

    assert Counter(found[:offset]) == answers(old, "before")
    if case in BEGINS_ANEW:
        expected = answers(new, "after", positions=seam)
    else:
        expected = answers(new, "every") - answers(new, "known")
    assert Counter(found[offset:]) == expected
    assert run.engine.policy_host.admitted.keys() <= {"q"}


@pytest.mark.parametrize("case", [case for case in PAIRS if case not in BEGINS_ANEW])
@pytest.mark.parametrize("seed", range(scaled(2, 30)))
def test_a_paused_query_goes_on_with_the_new_plan_as_if_that_had_been_paused(
    tmp_path: Path, case: str, seed: int
) -> None:
    (old, new), random = PAIRS[case], Random(f"{case} {seed} paused")
    data = {name: generated(random, 400) for name in ("readings", "other")}
    streams = streams_of(tmp_path / "all", data, random, dict.fromkeys(data, 200))
    run = run_plan(old, "out", streams, train=random.randrange(1, 20), sink=SeamSink())
    for _ in range(random.randrange(60)):
        run.engine.step()
    run.engine.pause("q")
    before, seam = replaced(run, new, streams)
    assert run.query.state is QueryState.PAUSED

    def resumed(run: PlanRun, streams: list[ScriptedStream], at: dict[str, int]) -> list[Row]:
        """Return the answers after a pause until row 300 of each stream."""
        for each in streams:
            each.rows(*data[each.name][at[each.name] : 300])
        run.engine.resume("q")
        for each in streams:
            each.rows(*data[each.name][300:])
            each.complete()
        return run.rows()

    found = resumed(run, streams, dict.fromkeys(data, 200))
    early = run_plan(old, "out", streams_of(tmp_path / "before", data, random, seam))
    assert Counter(found[: before.offset]) == Counter(early.rows())
    always = streams_of(tmp_path / "always", data, random, seam)
    reference = run_plan(new, "out", always)
    known = len(reference.rows())
    reference.engine.pause("q")
    expected = resumed(reference, always, seam)[known:]
    assert Counter(found[before.offset :]) == Counter(expected)


@pytest.mark.parametrize("seed", range(scaled(4, 60)))
def test_operators_that_are_the_same_keep_their_state(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    old = {**KEPT, "out": select("a", "n > 1")}
    new = {**KEPT, "out": select("a", "total % 2 = 0")}
    data = {"readings": generated(random, 300)}
    streams = streams_of(tmp_path / "all", data, random)
    run = run_plan(old, "out", streams, train=random.randrange(1, 20), sink=SeamSink())
    for _ in range(random.randrange(12)):
        run.engine.step()
    held = run.query.network.operators["a"]
    (offset, _), positions = replaced(run, new, streams)
    found = run.rows()
    assert run.query.network.operators.get("a", held) is held
    early = streams_of(tmp_path / "before", data, random, positions)
    assert Counter(found[:offset]) == Counter(run_plan(old, "out", early).rows())
    known = Counter(run_plan(new, "out", streams_of(tmp_path / "known", data, random, positions)).rows())
    every = Counter(run_plan(new, "out", streams_of(tmp_path / "every", data, random)).rows())
    assert Counter(found[offset:]) == every - known, "windows that were open are answered whole"


def test_windows_with_rows_that_are_not_retained_are_not_answered(stream: MakeStream) -> None:
    readings = stream("readings", FIELDS, event_time="ts", options=LogOptions(segment_bytes=4096))
    run = run_plan({**IN, "out": select("in", "x >= 0")}, "out", [readings], sink=SeamSink())
    for n in range(195):
        readings.rows(*rows(n, 1))
    assert len(run.rows()) == 195
    readings.writer.remove_before(readings.writer.segments[-1].serial)
    begin = readings.writer.begin
    assert 100 < begin < 190
    outcome, _ = replaced(run, {**IN, "out": counting("in", windowed("100s"))}, [readings])
    assert outcome == Replaced(195, {"readings": (begin, (begin - 1) * SECOND)})
    readings.rows(*rows(195, 200))
    readings.complete()
    assert {row[3] // SECOND for row in run.rows()[195:]} == {200, 300}
    assert run.query.counters["out"]["missed"] == 5, "those behind the seam"


def test_a_warm_up_that_fails_leaves_the_query_as_it_is(stream: MakeStream) -> None:
    readings = readings_of(stream)
    run = run_plan({**IN, "out": counting("in")}, "out", [readings])
    readings.rows(*rows(0, 25))
    run.engine.run()
    broken = {
        **IN,
        "p": {**PROJECTED, "compute": {"x": "sqrt(-1 - x)", "home": "home"}},
        "out": counting("p", HOPPING),
    }
    found: list[Replaced | str] = []
    change = NewPlan(typed(broken, "out", readings), on_error=OnError.FAIL)
    run.engine.replace("q", change, 1, found.append)
    run.engine.run()
    assert len(found) == 1
    assert isinstance(found[0], str)
    assert "the new plan failed on earlier rows: operator 'p' met a row" in found[0]
    readings.rows(*rows(25, 10))
    readings.complete()
    assert len(run.rows()) == len(run_plan({**IN, "out": counting("in")}, "out", [readings]).rows())


def test_other_options_come_with_a_plan(stream: MakeStream) -> None:
    readings = readings_of(stream)
    plan = {**IN, "out": {"op": "project", "input": "in", "compute": {"x": "sqrt(x - 31)"}}}
    run = run_plan(plan, "out", [readings], sink=SeamSink())
    readings.rows(*rows(0, 31))
    assert run.rows()[30] == (None,)
    assert len(run.rows()) == 31
    replaced(run, plan, [readings], on_error=OnError.SKIP, memory_limit=1 << 20)
    assert run.query.request.memory_limit == 1 << 20
    readings.rows(*rows(30, 2))
    assert run.rows()[31:] == [(0.0,)]


def test_a_replacement_is_refused_or_given_up_and_the_query_goes_on(
    tmp_path: Path, stream: MakeStream
) -> None:
    readings = readings_of(stream)
    run = run_plan({**IN, "out": select("in", "x > 0")}, "out", [readings])
    found: list[Replaced | str] = []
    readings.rows(*rows(0, 5))
    run.engine.step()
    new = NewPlan(typed({**IN, "out": select("in", "x > 2")}, "out", readings))
    run.engine.replace("q", new, 1, found.append)
    run.engine.pause("q")
    assert found == ["the query was paused"]
    assert len(run.rows()) == 4
    run.engine.replace("q", new, 1, found.append)
    run.engine.resume("q")
    assert found.pop() == "the query was resumed"
    absent = ScriptedStream(tmp_path, "absent", FIELDS, ManualClock())
    elsewhere = typed(
        {"in": {"op": "source", "stream": "absent"}, "out": select("in", "x > 2")}, "out", absent
    )
    with pytest.raises(UnknownObject, match="'absent' is not attached"):
        run.engine.replace("q", NewPlan(elsewhere), 1, found.append)
    run.engine.replace("q", new, 1, found.append)
    run.engine.stop("q")
    assert found[1:] == ["the query has ended"]
    with pytest.raises(IllegalMove, match="query 'q' is stopped; its plan cannot be replaced any more"):
        run.engine.replace("q", new, 1, found.append)
