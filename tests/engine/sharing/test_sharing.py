"""Queries with equal prefixes run them once, with the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.engine.shared_pipelines import SECOND, SOURCE, US, Bench, counts, hot, readings_of, shares

from mavstream_protocol.queries import OnError
from mavstream_server.engine.reporting import oldest_arrival, query_metrics
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.tables.stored import OpenTables
from mavstream_server.testing import ManualClock, ScriptedStream, ScriptedTable


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return readings_of(stream)


@pytest.fixture
def bench(readings: ScriptedStream, clock: ManualClock) -> Bench:
    return Bench(readings, clock)


def test_equal_selects_run_once_whatever_their_names(bench: Bench) -> None:
    runs = [
        bench.start("a", hot(compute="x + 1")),
        bench.start("b", hot(node="warm", compute="x * 2")),
        bench.start("c", hot(compute="second(ts)")),
    ]
    bench.feed(1, 10)
    assert shares(*runs)
    pipeline = bench.pipeline()
    assert pipeline.class_name == "default"
    assert set(pipeline.columns) == {"ts", "x"}
    assert [list(run.query.tasks) for run in runs] == [["out", "#output"]] * 3
    before = pipeline.network.operators["hot"].rows_out
    bench.feed(*range(20))
    assert pipeline.network.operators["hot"].rows_out - before == 10
    assert [run.answers() for run in runs] == [
        [(11,), *((x + 1,) for x in range(10, 20))],
        [(20,), *((2 * x,) for x in range(10, 20))],
        [(0,)] * 11,
    ]
    assert [run.query.rows_in for run in runs] == [22] * 3


@pytest.mark.parametrize(
    ("nodes", "request_"),
    [
        (hot("x >= 11"), {}),
        (hot("x >= 10.0"), {}),
        (hot(), {"options": RunOptions(OnError.SKIP)}),
        (hot(), {"options": RunOptions(stop_at=4_000_000_000_000_000)}),
        (counts(), {}),
    ],
    ids=["another predicate", "another type", "another way with errors", "an end by the clock", "a window"],
)
def test_different_prefixes_are_not_shared(
    bench: Bench, nodes: dict[str, Any], request_: dict[str, Any]
) -> None:
    bench.start("a", hot())
    bench.start("b", nodes, **request_)
    bench.feed(*range(20))
    assert not bench.pipelines


@pytest.mark.parametrize("window", [{"kind": "tumbling", "size": 3}, {**SECOND, "partial": True}])
def test_windows_that_begin_with_the_query_are_not_shared(bench: Bench, window: dict[str, Any]) -> None:
    bench.start("a", counts(window))
    bench.start("b", counts(window))
    bench.feed(*range(20))
    assert not bench.pipelines


def test_a_query_attaches_when_the_windows_that_it_missed_rows_of_are_closed(bench: Bench) -> None:
    runs = [bench.start("a", counts()), bench.start("b", counts(keep="n > 1"))]
    bench.feed(0, 500)
    assert shares(*runs)
    late = bench.start("late", counts(keep="n > 0"), earliest=False)
    bench.feed(600, 900)
    assert not shares(late)
    bench.feed(1000, 1100, 1900, 2000)
    assert shares(late)
    bench.feed(2500, 3000)
    assert runs[0].answers() == [(n, k * US, (k + 1) * US) for k, n in enumerate((4, 3, 2))]
    assert runs[1].answers() == runs[0].answers()
    assert late.answers() == runs[0].answers()[1:]


def test_queries_that_are_fed_all_the_time_come_to_share(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    bench = Bench(readings, clock, sources="between_slices")
    readings.rows(*[(value, value) for value in range(2000)], frame=3)
    first = bench.start("a", hot())
    for _ in range(3):
        bench.engine.step()
    runs = [first, bench.start("b", hot()), bench.start("c", hot())]
    steps = 0
    while not shares(*runs):
        assert bench.engine.step()
        clock.advance(nanoseconds=50_000)
        steps += 1
    assert max(run.query.rows_in for run in runs) < 1000, f"too late, after {steps} steps"
    bench.engine.run()
    assert [run.answers() for run in runs] == [[(x + 1,) for x in range(10, 2000)]] * 3


def test_no_query_waits_for_the_others_when_a_stream_becomes_idle(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    bench = Bench(readings, clock, sources="between_slices")
    readings.rows(*[(value, value) for value in range(100)], frame=3)
    runs = [bench.start(id_, hot()) for id_ in "abc"]
    for _ in range(4):
        bench.engine.step()
    bench.engine.run()
    assert [len(run.answers()) for run in runs] == [90] * 3


def test_queries_move_to_the_prefix_that_most_queries_share(bench: Bench) -> None:
    pair = [bench.start(id_, hot(compute="x + 1")) for id_ in "ab"]
    bench.feed(1, 10)
    assert bench.pipeline().columns == ("y",)
    others = [bench.start(id_, hot(compute=f"x + {n}")) for n, id_ in enumerate("cde", 2)]
    bench.feed(11, 12)
    assert shares(*pair, *others)
    assert len(bench.pipeline().members) == 5
    assert bench.pipeline().columns == ("x",)
    assert [run.answers() for run in pair] == [[(11,), (12,), (13,)]] * 2


def test_small_batches_are_joined_for_many_members_while_more_rows_wait(bench: Bench) -> None:
    runs = [bench.start(f"q{n}", hot("x % 8 = 1", compute=f"x + {n}")) for n in range(6)]
    bench.feed(1)
    assert shares(*runs)
    before = [len(run.sink.batches) for run in runs]
    bench.readings.rows(*[(value, value) for value in range(8 * 12)], frame=4)
    bench.engine.run()
    assert [len(run.sink.batches) - had for run, had in zip(runs, before, strict=True)] == [2] * 6
    assert [run.answers()[1:] for run in runs] == [[(8 * k + 1 + n,) for k in range(12)] for n in range(6)]


def test_a_query_that_is_kept_apart_does_not_share_until_it_is_added_again(bench: Bench) -> None:
    runs = [bench.start(id_, hot()) for id_ in "abc"]
    bench.feed(1, 10)
    bench.engine.sharing.keep_apart(runs[0].query)
    bench.feed(11)
    assert [bool(run.query.shared) for run in runs] == [False, True, True]
    bench.engine.sharing.add(runs[0].query)
    bench.feed(12)
    assert shares(*runs)
    assert [run.answers() for run in runs] == [[(11,), (12,), (13,)]] * 3


def test_each_source_of_a_plan_can_be_shared(bench: Bench) -> None:
    def joined(within: str) -> dict[str, Any]:
        hot_, cold = ({"op": "select", "input": "in", "where": f"x {w}"} for w in (">= 10", "< 10"))
        join = {"op": "join", "left": "hot", "right": "cold", "on": [], "within": within}
        return {
            "in": SOURCE,
            "also": SOURCE,
            "hot": hot_,
            "cold": {**cold, "input": "also"},
            "out": {**join, "on": [["ts", "ts"]], "compute": {"l": "l.x", "r": "r.x"}},
        }

    runs = [bench.start("a", joined("1s")), bench.start("b", joined("2s"))]
    bench.feed(1, 10)
    assert [len(run.query.shared) for run in runs] == [2, 2]
    assert len(bench.pipelines) == 2
    bench.readings.rows((30_000, 5), (30_000, 15))
    bench.engine.run()
    assert [run.answers() for run in runs] == [[(15, 5)]] * 2


def test_metrics_report_members_and_prefixes(bench: Bench) -> None:
    for id_ in "abc":
        bench.start(id_, hot(node=f"hot_{id_}", compute=f"x + {ord(id_)}"))
    bench.feed(1, 10)
    bench.feed(*range(20))
    for id_ in "abc":
        stats = query_metrics(bench.engine.query(id_), epoch=1)
        shared = {operator.name: (operator.sharers, operator.shared_with) for operator in stats.operators}
        others = tuple(other for other in "abc" if other != id_)
        assert shared == {
            "in": (3, others),
            f"hot_{id_}": (3, others),
            "out": (1, ()),
            "#output": (1, ()),
        }
        assert {operator.name: operator.rows_out for operator in stats.operators} == {
            "in": 22,
            f"hot_{id_}": 11,
            "out": 11,
            "#output": 0,
        }
        assert (stats.rows_in, stats.rows_out, stats.positions) == (22, 11, {"readings": 22})


@pytest.fixture
def rooms(tmp_path: Path, clock: ManualClock) -> Iterator[ScriptedTable]:
    table = ScriptedTable(tmp_path / "tables", "rooms", "room int, cap int", clock)
    yield table
    table.close()


@pytest.fixture
def joining(readings: ScriptedStream, rooms: ScriptedTable, clock: ManualClock) -> Bench:
    """Return an engine whose queries may join the table of rooms."""
    return Bench(readings, clock, tables=OpenTables(rooms.path.parent))


def looked_up(compute: dict[str, str], above: str) -> dict[str, Any]:
    """Return a select, a table join that computes something, and a project."""
    nodes = hot(compute=above)
    join = {"op": "join", "left": "hot", "right": "rooms", "on": [["x", "room"]], "compute": compute}
    nodes["out"]["input"] = "j"
    return {**nodes, "rooms": {"op": "table", "table": "rooms"}, "j": join}


def test_a_shared_table_join_uses_the_versions_of_the_rows(joining: Bench, rooms: ScriptedTable) -> None:
    rooms.put((11, 1), (12, 2))
    runs = [
        joining.start(id_, looked_up({"cap": "r.cap"}, f"cap + {n}"), tables=[rooms])
        for id_, n in (("a", 10), ("b", 20))
    ]
    joining.feed(1, 11)
    assert shares(*runs)
    assert [list(run.query.tasks) for run in runs] == [["out", "#output"]] * 2
    joining.clock.advance(seconds=1)
    rooms.put((11, 5), (12, 6))
    joining.clock.advance(seconds=1)
    joining.feed(11, 12)
    assert [run.answers() for run in runs] == [[(11,), (15,), (16,)], [(21,), (25,), (26,)]]


def test_rows_in_a_shared_pipeline_hold_the_table_versions_that_they_need(
    joining: Bench, rooms: ScriptedTable
) -> None:
    rooms.put((11, 1))
    runs = [
        joining.start("a", looked_up({"cap": "r.cap"}, "cap"), tables=[rooms]),
        joining.start("b", looked_up({"cap": "r.cap + 1"}, "cap"), tables=[rooms]),
    ]
    joining.feed(1, 10)
    assert shares(*runs)
    assert oldest_arrival(joining.engine.queries.values()) is None
    arrived = joining.clock.now()
    joining.readings.rows((11_000, 11))
    joining.clock.advance(seconds=1)
    joining.engine.intake.look(arrived)
    assert joining.engine.intake.serve(arrived, idle=True)
    assert oldest_arrival(joining.engine.queries.values()) == arrived
    joining.engine.run()
    assert [run.answers() for run in runs] == [[(1,)], [(2,)]]


def test_rows_that_do_not_pass_cost_members_without_windows_no_turn(bench: Bench) -> None:
    runs = [bench.start("a", hot()), bench.start("b", hot())]
    bench.feed(10, 11)
    assert shares(*runs)
    before = bench.engine.loop.slices
    bench.feed(0)
    assert bench.engine.loop.slices == before + 1, "of the pipeline"


def test_rows_that_do_not_pass_close_the_windows_of_members(bench: Bench) -> None:
    counted = {"op": "aggregate", "input": "hot", "window": SECOND, "compute": {"n": "count(x)"}}
    runs = [bench.start(name, {**hot(), "out": counted}) for name in ("a", "b")]
    runs.append(bench.start("c", {**hot(), "out": {**counted, "compute": {"n": "sum(x)"}}}))
    bench.feed(10, 11)
    assert shares(*runs)
    bench.readings.rows((3 * US, 0))
    bench.settle()
    assert [[row[0] for row in run.answers()] for run in runs] == [[2], [2], [21]]
