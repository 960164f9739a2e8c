"""Queries with equal prefixes run them once, and are none the worse for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_protocol.queries import OnError
from mavstream_protocol.scheduling import Sharing
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.reporting import query_stats
from mavstream_server.engine.sharing.trunk import Trunk
from mavstream_server.engine.states import QueryState
from mavstream_server.engine.table_needs import oldest_arrival
from mavstream_server.instantiator import RunOptions
from mavstream_server.tables.stored import OpenTables
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, ScriptedTable, run_plan

SOURCE = {"op": "source", "stream": "readings"}
SECOND = {"kind": "tumbling", "size": "1s"}
US = 1_000_000
PATIENCE = 5_000_000


def hot(where: str = "x >= 10", *, node: str = "hot", compute: str = "x + 1") -> dict[str, Any]:
    """Return a select and a project above it; the name of the select does not matter."""
    return {
        "in": SOURCE,
        node: {"op": "select", "input": "in", "where": where},
        "out": {"op": "project", "input": node, "compute": {"y": compute}},
    }


def counts(window: dict[str, Any] | None = None, keep: str = "n > 0") -> dict[str, Any]:
    aggregate = {"op": "aggregate", "input": "in", "window": window or SECOND, "compute": {"n": "count(*)"}}
    return {"in": SOURCE, "n": aggregate, "out": {"op": "select", "input": "n", "where": keep}}


class Bench:
    """An engine over one stream, and queries on it."""

    def __init__(self, readings: ScriptedStream, clock: ManualClock, **options: Any) -> None:
        self.readings = readings
        self.clock = clock
        self.engine = Engine(clock, **{"train": 8, **options})
        self.engine.attach(readings.name, readings.reader)

    def start(self, id_: str, nodes: dict[str, Any], **request: Any) -> PlanRun:
        return run_plan(nodes, "out", [self.readings], engine=self.engine, id_=id_, **request)

    def feed(self, *values: int, frame: int | None = None) -> None:
        """Write rows a millisecond apart and work on them."""
        self.readings.rows(*[(value * 1000, value) for value in values], frame=frame)
        self.settle()

    def settle(self) -> None:
        """Work until nothing is left to do, and long enough for whoever can share to do so."""
        for _ in range(3):
            self.engine.run()
            self.clock.advance(seconds=2)
        self.engine.run()

    @property
    def trunks(self) -> list[Trunk]:
        return list(self.engine.sharing.trunks)

    def trunk(self) -> Trunk:
        (trunk,) = self.trunks
        return trunk


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "ts timestamp, x int", event_time="ts")


@pytest.fixture
def bench(readings: ScriptedStream, clock: ManualClock) -> Bench:
    return Bench(readings, clock)


def shares(*runs: PlanRun) -> bool:
    return all(run.query.shared for run in runs)


def test_equal_selects_are_run_once_whatever_they_are_called(bench: Bench) -> None:
    runs = [
        bench.start("a", hot(compute="x + 1")),
        bench.start("b", hot(node="warm", compute="x * 2")),
        bench.start("c", hot(compute="second(ts)")),
    ]
    bench.feed(1, 10)
    assert shares(*runs)
    trunk = bench.trunk()
    assert trunk.class_name == "default"
    assert set(trunk.columns) == {"ts", "x"}
    assert [list(run.query.tasks) for run in runs] == [["out", "#output"]] * 3
    before = trunk.network.operators["hot"].rows_out
    bench.feed(*range(20))
    assert trunk.network.operators["hot"].rows_out - before == 10
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
def test_what_differs_is_not_shared(bench: Bench, nodes: dict[str, Any], request_: dict[str, Any]) -> None:
    bench.start("a", hot())
    bench.start("b", nodes, **request_)
    bench.feed(*range(20))
    assert not bench.trunks


@pytest.mark.parametrize("window", [{"kind": "tumbling", "size": 3}, {**SECOND, "partial": True}])
def test_windows_that_begin_with_the_query_are_its_own(bench: Bench, window: dict[str, Any]) -> None:
    bench.start("a", counts(window))
    bench.start("b", counts(window))
    bench.feed(*range(20))
    assert not bench.trunks


def test_a_query_joins_when_the_windows_that_its_start_has_cut_are_closed(bench: Bench) -> None:
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


def test_queries_that_are_fed_all_the_time_are_brought_together(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    bench = Bench(readings, clock, sources="between_slices")
    readings.rows(*[(value, value) for value in range(2000)], frame=3)
    first = bench.start("a", hot())
    for _ in range(6):
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


def test_a_stream_that_falls_silent_leaves_nobody_waiting(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    bench = Bench(readings, clock, sources="between_slices")
    readings.rows(*[(value, value) for value in range(100)], frame=3)
    runs = [bench.start(id_, hot()) for id_ in "abc"]
    for _ in range(4):
        bench.engine.step()
    bench.engine.run()
    assert [len(run.answers()) for run in runs] == [90] * 3


def test_queries_go_to_where_most_is_shared(bench: Bench) -> None:
    pair = [bench.start(id_, hot(compute="x + 1")) for id_ in "ab"]
    bench.feed(1, 10)
    assert bench.trunk().columns == ("y",)
    others = [bench.start(id_, hot(compute=f"x + {n}")) for n, id_ in enumerate("cde", 2)]
    bench.feed(11, 12)
    assert shares(*pair, *others)
    assert len(bench.trunk().parts) == 5
    assert bench.trunk().columns == ("x",)
    assert [run.answers() for run in pair] == [[(11,), (12,), (13,)]] * 2


def test_small_batches_are_gathered_for_many_queries_while_more_is_there(bench: Bench) -> None:
    runs = [bench.start(f"q{n}", hot("x % 8 = 1", compute=f"x + {n}")) for n in range(6)]
    bench.feed(1)
    assert shares(*runs)
    before = [len(run.sink.batches) for run in runs]
    bench.readings.rows(*[(value, value) for value in range(8 * 12)], frame=4)
    bench.engine.run()
    assert [len(run.sink.batches) - had for run, had in zip(runs, before, strict=True)] == [2] * 6
    assert [run.answers()[1:] for run in runs] == [[(8 * k + 1 + n,) for k in range(12)] for n in range(6)]


def test_one_that_is_kept_apart_is_left_alone_until_it_comes_again(bench: Bench) -> None:
    runs = [bench.start(id_, hot()) for id_ in "abc"]
    bench.feed(1, 10)
    bench.engine.sharing.keep_apart(runs[0].query)
    bench.feed(11)
    assert [bool(run.query.shared) for run in runs] == [False, True, True]
    bench.engine.sharing.came(runs[0].query)
    bench.feed(12)
    assert shares(*runs)
    assert [run.answers() for run in runs] == [[(11,), (12,), (13,)]] * 3


def test_sharing_can_be_switched_off(readings: ScriptedStream, clock: ManualClock) -> None:
    bench = Bench(readings, clock, sharing=Sharing.OFF)
    bench.start("a", hot())
    bench.start("b", hot())
    bench.feed(*range(20))
    assert not bench.trunks


def test_classes_share_only_if_asked(readings: ScriptedStream, clock: ManualClock) -> None:
    bench = Bench(readings, clock)
    runs = [bench.start("a", hot()), bench.start("b", hot(), class_name="high")]
    bench.feed(*range(20))
    assert not bench.trunks
    bench.engine.reclass("b", "default")
    bench.settle()
    assert shares(*runs)
    bench.engine.reclass("b", "high")
    bench.settle()
    assert not bench.trunks
    bench.feed(20)
    assert [len(run.answers()) for run in runs] == [11, 11]


def test_what_classes_share_is_charged_to_the_highest(readings: ScriptedStream, clock: ManualClock) -> None:
    bench = Bench(readings, clock, policy="cqc", sharing=Sharing.ALL)
    bench.engine.set_priority("high", 6)
    runs = [bench.start("a", hot()), bench.start("b", hot(), class_name="high"), bench.start("c", hot())]
    bench.feed(*range(20))
    assert shares(*runs)
    assert bench.trunk().class_name == "high"
    bench.engine.set_priority("default", 9)
    assert bench.trunk().class_name == "default"
    bench.engine.set_priority("default", 1)
    bench.engine.stop("b")
    bench.feed(20)
    assert bench.trunk().class_name == "default"
    assert [len(run.answers()) for run in runs] == [11, 10, 11]


def test_a_trunk_weighs_as_much_as_the_heaviest_of_its_queries(bench: Bench) -> None:
    runs = [bench.start(id_, hot()) for id_ in "abc"]
    bench.engine.weigh("a", 3)
    bench.feed(1, 10)
    assert shares(*runs)
    assert bench.trunk().weight == 3
    bench.engine.weigh("b", 5)
    assert bench.trunk().weight == 5
    bench.engine.stop("b")
    bench.feed(11)
    assert bench.trunk().weight == 3


def crowded(bench: Bench) -> tuple[PlanRun, PlanRun, PlanRun]:
    """Return queries on a trunk, the first of which has no room for what has just come."""
    slow = bench.start("slow", hot(), queue_limit=3)
    runs = slow, bench.start("b", hot()), bench.start("c", hot())
    bench.feed(1, 10)
    assert shares(*runs)
    bench.readings.rows(*[(value, value) for value in range(100, 200)], frame=4)
    while slow.query.network.account.rows < 3:
        assert bench.engine.step()
    return runs


def test_a_query_without_room_leaves_and_the_others_go_on(bench: Bench) -> None:
    slow, *others = crowded(bench)
    bench.clock.advance(nanoseconds=PATIENCE)
    bench.engine.step()
    assert not shares(slow)
    assert shares(*others)
    assert slow.query.rows_in < 102
    bench.engine.run()
    bench.clock.advance(seconds=0.5)
    bench.engine.run()
    assert not shares(slow), "it came back at once"
    assert [run.answers()[-100:] for run in (slow, *others)] == [[(x + 1,) for x in range(100, 200)]] * 3
    assert slow.query.rows_in == 102


def test_a_query_that_finds_room_soon_stays_and_nobody_reads_ahead_meanwhile(bench: Bench) -> None:
    slow, *others = crowded(bench)
    (source,) = bench.trunk().sources.values()
    assert not source.has_room
    bench.engine.run()
    assert shares(slow, *others)
    assert source.has_room
    assert [run.answers()[-100:] for run in (slow, *others)] == [[(x + 1,) for x in range(100, 200)]] * 3


def test_no_query_holds_more_than_its_room_and_what_was_on_its_way(bench: Bench) -> None:
    slow, *_ = crowded(bench)
    bench.readings.rows(*[(value, value) for value in range(200, 1000)], frame=4)
    most = 0
    while bench.engine.step():
        most = max(most, slow.query.network.account.rows)
    assert most <= 3 + 2 * 8


def test_one_that_is_left_runs_by_itself(bench: Bench) -> None:
    runs = [bench.start(id_, hot()) for id_ in "abc"]
    bench.feed(1, 10)
    assert bench.engine.intake.needed() == {"readings": (2, "a")}
    bench.engine.stop("a")
    bench.engine.pause("b")
    bench.feed(11)
    assert not bench.trunks
    assert list(bench.engine.seat.admitted) == ["b", "c"]
    assert bench.engine.intake.needed() == {"readings": (3, "c")}
    bench.engine.resume("b")
    bench.feed(12)
    assert shares(*runs[1:])
    assert [run.answers() for run in runs] == [[(11,)], [(11,), (13,)], [(11,), (12,), (13,)]]
    assert [run.query.rows_in for run in runs] == [2, 3, 4]


def test_a_stream_is_let_go_when_its_queries_are(bench: Bench) -> None:
    for id_ in "ab":
        bench.start(id_, hot())
    bench.feed(1, 10)
    for id_ in "ab":
        bench.engine.stop(id_)
    assert bench.engine.intake.needed() == {}
    bench.engine.detach("readings")
    assert not bench.engine.seat.admitted


def test_queries_fail_as_they_would_have_alone(bench: Bench) -> None:
    fail = RunOptions(OnError.FAIL)
    runs = [
        bench.start("a", hot("CAST(9223372036854775807 + x AS int) > 0"), options=fail),
        bench.start("b", hot("CAST(9223372036854775807 + x AS int) > 0", node="warm"), options=fail),
        bench.start("c", hot()),
    ]
    bench.feed(0)
    assert shares(*runs[:2])
    ended: list[RunningQuery] = []
    bench.engine.ended = ended.append
    bench.feed(10)
    assert [run.query.state for run in runs] == [QueryState.FAILED, QueryState.FAILED, QueryState.RUNNING]
    assert [query.id for query in ended] == ["a", "b"]
    for run, node in zip(runs, ("'hot'", "'warm'"), strict=False):
        assert run.query.reason is not None
        assert f"operator {node} met a row that cannot be computed" in run.query.reason
    assert runs[2].answers() == [(11,)]
    assert list(bench.engine.seat.admitted) == ["c"]


def test_a_complete_stream_ends_all_of_them(bench: Bench) -> None:
    runs = [bench.start(id_, counts()) for id_ in "abc"]
    bench.feed(0, 500)
    assert shares(*runs)
    bench.readings.complete()
    bench.engine.run()
    assert [run.query.state for run in runs] == [QueryState.FINISHED] * 3
    assert [run.answers() for run in runs] == [[(2, 0, US)]] * 3
    assert not bench.engine.seat.admitted
    assert [run.query.rows_in for run in runs] == [2] * 3


def test_a_query_counts_what_is_held_for_it_as_its_own_and_keeps_its_limit(bench: Bench) -> None:
    grouped = {
        "in": SOURCE,
        "n": {"op": "aggregate", "input": "in", "by": ["x"], "window": SECOND, "compute": {"n": "count(*)"}},
        "out": {"op": "select", "input": "n", "where": "n > 0"},
    }
    runs = [bench.start("a", grouped), bench.start("b", grouped, memory_limit=200_000)]
    bench.feed(0, 1)
    assert shares(*runs)
    held = bench.trunk().memory.state
    assert held > 0
    assert [run.query.memory.state for run in runs] == [held] * 2
    bench.readings.rows(*[(2, x) for x in range(20_000)], frame=500)
    bench.engine.run()
    assert [run.query.state for run in runs] == [QueryState.RUNNING, QueryState.FAILED]
    assert runs[1].query.reason is not None
    assert "more than its limit of 200000" in runs[1].query.reason
    bench.feed(1000)
    assert len(runs[0].answers()) == 20_000
    assert not bench.trunks


def test_a_snapshot_of_one_goes_on_elsewhere(bench: Bench) -> None:
    runs = [bench.start("a", counts()), bench.start("b", counts())]
    bench.feed(0, 500)
    assert shares(*runs)
    bench.readings.rows((600_000, 600), (1_200_000, 1200), (2_100_000, 2100))
    for _ in range(2):
        bench.engine.step()
    saved, before = bench.engine.snapshot("a"), runs[0].answers()
    again = Bench(bench.readings, bench.clock).start("a", counts(), saved=saved)
    bench.engine.run()
    assert before + again.rows() == runs[0].answers() == runs[1].answers() == [(3, 0, US), (1, US, 2 * US)]


def test_a_query_that_sheds_rows_is_left_alone(bench: Bench) -> None:
    bench.start("a", counts())
    bench.engine.shed("a", 0.5)
    bench.start("b", counts())
    bench.feed(*range(20))
    assert not bench.trunks
    bench.engine.shed("a", 0)
    bench.feed(20)
    assert not bench.trunks, "rows may be missing in its windows"


def test_what_a_query_has_shed_stays_told_while_it_shares_and_afterwards(bench: Bench) -> None:
    shedding, other = bench.start("a", hot()), bench.start("b", hot())
    bench.feed(1)
    assert shares(shedding, other)
    bench.engine.shed("a", 0.5)
    bench.feed(*range(20))
    assert not bench.trunks
    bench.engine.shed("a", 0)
    bench.feed(20)
    assert shares(shedding, other)
    spells, counters = shedding.query.spells, shedding.query.counters
    assert spells
    assert counters["in"]["shed"] == sum(spell.shed for spell in spells)
    bench.engine.sharing.keep_apart(shedding.query)
    bench.feed(21)
    assert (shedding.query.spells, shedding.query.counters) == (spells, counters)
    assert other.query.counters == {}


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
    assert len(bench.trunks) == 2
    bench.readings.rows((30_000, 5), (30_000, 15))
    bench.engine.run()
    assert [run.answers() for run in runs] == [[(15, 5)]] * 2


def test_figures_tell_who_shares_what(bench: Bench) -> None:
    for id_ in "abc":
        bench.start(id_, hot(node=f"hot_{id_}", compute=f"x + {ord(id_)}"))
    bench.feed(1, 10)
    bench.feed(*range(20))
    for id_ in "abc":
        stats = query_stats(bench.engine.query(id_), epoch=1)
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


def looked_up(compute: dict[str, str], above: str) -> dict[str, Any]:
    """Return a select, a table join that computes something, and a project."""
    nodes = hot(compute=above)
    join = {"op": "join", "left": "hot", "right": "rooms", "on": [["x", "room"]], "compute": compute}
    nodes["out"]["input"] = "j"
    return {**nodes, "rooms": {"op": "table", "table": "rooms"}, "j": join}


def test_tables_are_joined_once_with_the_versions_of_the_rows(bench: Bench, rooms: ScriptedTable) -> None:
    bench.engine.assembly.tables = OpenTables(rooms.path.parent)
    rooms.put((11, 1), (12, 2))
    runs = [
        bench.start(id_, looked_up({"cap": "r.cap"}, f"cap + {n}"), tables=[rooms])
        for id_, n in (("a", 10), ("b", 20))
    ]
    bench.feed(1, 11)
    assert shares(*runs)
    assert [list(run.query.tasks) for run in runs] == [["out", "#output"]] * 2
    bench.clock.advance(seconds=1)
    rooms.put((11, 5), (12, 6))
    bench.clock.advance(seconds=1)
    bench.feed(11, 12)
    assert [run.answers() for run in runs] == [[(11,), (15,), (16,)], [(21,), (25,), (26,)]]


def test_rows_in_a_trunk_are_on_their_way_to_a_table(bench: Bench, rooms: ScriptedTable) -> None:
    bench.engine.assembly.tables = OpenTables(rooms.path.parent)
    rooms.put((11, 1))
    runs = [
        bench.start("a", looked_up({"cap": "r.cap"}, "cap"), tables=[rooms]),
        bench.start("b", looked_up({"cap": "r.cap + 1"}, "cap"), tables=[rooms]),
    ]
    bench.feed(1, 10)
    assert shares(*runs)
    assert oldest_arrival(bench.engine.queries.values(), "rooms") is None
    arrived = bench.clock.now()
    bench.readings.rows((11_000, 11))
    bench.clock.advance(seconds=1)
    bench.engine.intake.look(arrived)
    assert bench.engine.intake.serve(arrived, idle=True)
    assert oldest_arrival(bench.engine.queries.values(), "rooms") == arrived
    bench.engine.run()
    assert [run.answers() for run in runs] == [[(1,)], [(2,)]]
