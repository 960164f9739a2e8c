"""Long answers are produced in steps, so that other queries run in between; limits bound what is held."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_protocol.errors import InvalidPlan
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.states import QueryState
from mavstream_server.testing import PlanRun, ScriptedStream, TickingClock, run_plan

MS = 1_000_000
JOIN = {
    "a": {"op": "source", "stream": "readings"},
    "b": {"op": "source", "stream": "readings"},
    "pairs": {
        "op": "join",
        "left": "a",
        "right": "b",
        "on": [["k", "k"]],
        "within": "1s",
        "compute": {"x": "l.x", "y": "r.x"},
    },
}
HOPPING = {
    "a": {"op": "source", "stream": "readings"},
    "windows": {
        "op": "aggregate",
        "input": "a",
        "window": {"kind": "hopping", "size": "1s", "hop": "1ms"},
        "compute": {"middle": "median(x)", "n": "count(DISTINCT x)"},
    },
}
WINDOW_JOIN = {
    **{name: JOIN[name] for name in ("a", "b")},
    "pairs": {
        "op": "join",
        "left": "a",
        "right": "b",
        "on": [["k", "k"]],
        "window": {"kind": "hopping", "size": "100ms", "hop": "10ms"},
        "compute": {"x": "l.x", "y": "r.x"},
    },
}
POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("rr", {}),
    ("rr", {"unit": "query"}),
    ("cqc", {}),
    ("segment", {}),
    ("abd", {}),
]


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "ts timestamp, k int, x int", event_time="ts")


def answers(
    readings: ScriptedStream,
    nodes: dict[str, Any],
    root: str,
    tick: int,
    policy: str,
    options: dict[str, Any],
) -> tuple[list[Any], Engine]:
    engine = Engine(TickingClock(tick), policy, options)
    engine.attach(readings.name, readings.reader)
    run = run_plan(nodes, root, [readings], engine=engine, earliest=True)
    rows = sorted(run.rows())
    assert run.query.state is QueryState.FINISHED, run.query.reason
    return rows, engine


@pytest.mark.parametrize(("policy", "options"), POLICIES, ids=lambda value: str(value))
@pytest.mark.parametrize(
    ("nodes", "root", "rows"),
    [(JOIN, "pairs", 400), (HOPPING, "windows", 300), (WINDOW_JOIN, "pairs", 60)],
    ids=["interval join", "hopping aggregate", "window join"],
)
def test_work_that_is_interrupted_gives_the_same_answer(
    readings: ScriptedStream,
    nodes: dict[str, Any],
    root: str,
    rows: int,
    policy: str,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mavstream_server.operators.joins.sorted_run.PAIRS_AT_ONCE", 64)
    monkeypatch.setattr("mavstream_server.operators.joins.interval_join._LARGE_ANSWER", 16)
    monkeypatch.setattr("mavstream_server.operators.joins.recent_rows._MOST_COMPARISONS", 100)
    readings.rows(*((1000 * number, number % 2, number % 7) for number in range(rows)))
    readings.rows((10_000_000, 0, 0))
    readings.complete()
    whole, _ = answers(readings, nodes, root, 0, policy, options)
    parts, busy = answers(readings, nodes, root, MS, policy, options)
    assert parts == whole
    assert busy.loop.slices > 20, "it was interrupted"


def test_an_important_query_does_not_wait_for_a_long_answer(
    readings: ScriptedStream, stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mavstream_server.operators.joins.sorted_run.PAIRS_AT_ONCE", 256)
    monkeypatch.setattr("mavstream_server.operators.joins.recent_rows._MOST_COMPARISONS", 100)
    monkeypatch.setattr("mavstream_server.operators.joins.interval_join._LARGE_ANSWER", 16)
    alarms = stream("alarms", "x int")
    engine = Engine(TickingClock(MS // 10), "cqc")
    engine.set_class("important", 10)
    for each in (readings, alarms):
        engine.attach(each.name, each.reader)
    hostile = run_plan(JOIN, "pairs", [readings], engine=engine, earliest=True, id_="hostile")
    select = {
        "in": {"op": "source", "stream": "alarms"},
        "s": {"op": "select", "input": "in", "where": "x >= 0"},
    }
    important = run_plan(select, "s", [alarms], engine=engine, id_="alarms", class_name="important")
    readings.rows(*((number, 0, number) for number in range(500)))  # all rows match all rows
    for _ in range(40):
        engine.step()
    assert hostile.query.state is QueryState.RUNNING
    assert len(hostile.answers()) < 250_000
    alarms.rows((1,))
    for _ in range(8):
        engine.step()
    assert important.answers() == [(1,)]
    engine.run()
    assert len(hostile.answers()) == 250_000


def test_a_snapshot_holds_what_unfinished_work_still_emits(
    readings: ScriptedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mavstream_server.operators.joins.sorted_run.PAIRS_AT_ONCE", 64)
    monkeypatch.setattr("mavstream_server.operators.joins.recent_rows._MOST_COMPARISONS", 100)
    monkeypatch.setattr("mavstream_server.operators.joins.interval_join._LARGE_ANSWER", 16)
    engine = Engine(TickingClock(MS), "rr")
    engine.attach(readings.name, readings.reader)
    run = run_plan(JOIN, "pairs", [readings], engine=engine, earliest=True)
    readings.rows(*((number, 0, number) for number in range(50)))
    join = run.query.network.operators["pairs"]
    while join.unfinished is None:
        assert engine.step()
    engine.snapshot("q")
    assert join.unfinished is None
    engine.run()
    assert len(run.answers()) == 2500


def text_plan(nodes: int) -> dict[str, Any]:
    plan: dict[str, Any] = {"n0": {"op": "source", "stream": "texts"}}
    for number in range(nodes):
        plan[f"n{number + 1}"] = {"op": "project", "input": f"n{number}", "compute": {"s": "s || s"}}
    return plan


def texts_run(stream: MakeStream, nodes: int, **request: Any) -> tuple[ScriptedStream, PlanRun]:
    texts = stream("texts", "s string")
    return texts, run_plan(text_plan(nodes), f"n{nodes}", [texts], **request)


def test_a_text_that_is_too_long_fails_the_query_by_name(stream: MakeStream) -> None:
    texts, run = texts_run(stream, 40)
    texts.rows(("ab",))
    run.engine.run()
    assert run.query.state is QueryState.FAILED
    assert run.query.reason is not None
    assert "at most 1048576 are possible" in run.query.reason


def test_texts_of_a_million_characters_can_be_computed(stream: MakeStream) -> None:
    texts, run = texts_run(stream, 19)
    texts.rows(("ab",))
    assert [len(row[0]) for row in run.rows()] == [1 << 20]


def test_computed_texts_count_as_memory_of_the_query(stream: MakeStream) -> None:
    texts, run = texts_run(stream, 10, memory_limit=100_000)
    for number in range(40):
        texts.rows(*((f"{number}-{row}",) for row in range(50)))
        run.engine.run()
    assert run.query.state is QueryState.FAILED
    assert run.query.reason is not None
    assert "more than its limit of 100000" in run.query.reason
    assert "in operator 'n10'" in run.query.reason


@pytest.mark.parametrize(("policy", "options"), POLICIES, ids=lambda value: str(value))
def test_a_query_that_fails_amid_its_work_has_nothing_more_to_do(
    readings: ScriptedStream, policy: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mavstream_server.operators.joins.sorted_run.PAIRS_AT_ONCE", 64)
    monkeypatch.setattr("mavstream_server.operators.joins.recent_rows._MOST_COMPARISONS", 100)
    monkeypatch.setattr("mavstream_server.operators.joins.interval_join._LARGE_ANSWER", 16)
    engine = Engine(TickingClock(MS), policy, options)
    engine.attach(readings.name, readings.reader)
    run = run_plan(JOIN, "pairs", [readings], engine=engine, earliest=True, memory_limit=6000)
    readings.rows(*((number, 0, number) for number in range(200)))
    join = run.query.network.operators["pairs"]
    engine.run()
    assert run.query.state is QueryState.FAILED
    assert run.query.reason is not None
    assert "more than its limit of 6000" in run.query.reason
    assert join.unfinished is None
    assert not engine.step()


def test_a_query_with_too_many_windows_per_row_is_refused(readings: ScriptedStream) -> None:
    windows = {**HOPPING["windows"], "window": {"kind": "hopping", "size": "100s", "hop": "1ms"}}
    with pytest.raises(InvalidPlan, match="each row would be in 100000 windows, at most 10000 are possible"):
        run_plan({**HOPPING, "windows": windows}, "windows", [readings])


def test_slices_are_measured(readings: ScriptedStream) -> None:
    readings.rows(*((1000 * number, 0, number) for number in range(100)))
    readings.complete()
    _, engine = answers(readings, HOPPING, "windows", MS, "rr", {})
    times = engine.loop.slice_times
    assert 0 < times.percentile(0.5) <= times.percentile(0.99) <= times.longest


def test_a_window_with_many_groups_is_answered_in_pieces(readings: ScriptedStream) -> None:
    plan = {
        "a": {"op": "source", "stream": "readings"},
        "groups": {
            "op": "aggregate",
            "input": "a",
            "by": ["k"],
            "window": {"kind": "tumbling", "size": "1s"},
            "compute": {"n": "count(*)", "d": "count(DISTINCT x)", "m": "median(x)"},
        },
    }
    keys = list(range(5000)) * 2
    readings.columns({"ts": [n // 10 for n in range(len(keys))], "k": keys, "x": [k % 7 for k in keys]})
    readings.complete()
    run = run_plan(plan, "groups", [readings], earliest=True)
    assert run.rows() == [(k, 2, 1, float(k % 7), 0, 1_000_000) for k in range(5000)]
    assert max(batch.size for batch in run.sink.batches) <= 1024
