"""When sources hand on rows: at once while idle, as fuller trains under load."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_protocol.scheduling import Sharing
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.reporting import latency_of
from mavstream_server.engine.sources.linger import Linger
from mavstream_server.scheduling.policy import SourceService
from mavstream_server.testing import ManualClock, PlanRun, run_plan, take_time

MS = 1_000_000
NODES = {
    "in": {"op": "source", "stream": "readings"},
    "s": {"op": "select", "input": "in", "where": "x >= 0"},
}


TRAIN = 64


class Busy:
    """An engine that has more than it can do: the stream `flood` always has unread rows.

    Operators take a microsecond per row.
    """

    def __init__(self, stream: MakeStream, clock: ManualClock, **options: Any) -> None:
        self.clock = clock
        self.readings, self.flood = stream("readings", "x int"), stream("flood", "x int")
        self.engine = Engine(clock, train=TRAIN, sharing=Sharing.OFF, **options)
        for each in (self.readings, self.flood):
            self.engine.attach(each.name, each.reader)
        self.start("flooded", "flood")

    def start(self, id_: str, stream: str, **request: Any) -> PlanRun:
        nodes = {**NODES, "in": {"op": "source", "stream": stream}}
        run = run_plan(nodes, "s", [self.readings, self.flood], engine=self.engine, id_=id_, **request)
        for operator in run.query.network.operators.values():
            if operator.kind == "select":
                take_time(operator, self.clock, lambda: 1000)
        return run

    def work(self, milliseconds: int, rows: int = 2000) -> None:
        """Step for a time; rows arrive for flooded queries faster than any of them can process them."""
        until = self.clock.now() + milliseconds * MS
        while self.clock.now() < until:
            sources = self.engine.intake.feeds["flood"].sources
            if min(source.work.waiting_rows for source in sources) < rows:
                self.flood.rows(*((number,) for number in range(rows)))
            self.engine.step()


def test_an_idle_engine_never_waits_for_more_rows(stream: MakeStream, clock: ManualClock) -> None:
    readings = stream("readings", "x int")
    run = run_plan(NODES, "s", [readings], clock=clock)
    for number in range(5):
        readings.rows((number,))
        assert len(run.rows()) == number + 1


def test_small_batches_make_a_source_wait_longer_up_to_a_quarter_of_its_target() -> None:
    linger = Linger()
    linger.aim_at(8_000)
    waits = []
    for _ in range(12):
        linger.adapt(10, 4096, idle=False, permitted=0)
        waits.append(linger.wait(permitted=0))
    assert waits[:3] == [50_000, 100_000, 200_000]
    assert waits[-1] == 2 * MS
    linger.adapt(4096, 4096, idle=False, permitted=0)
    assert linger.wait(permitted=0) == MS
    for _ in range(10):
        linger.adapt(10, 4096, idle=True, permitted=0)
    assert linger.wait(permitted=0) == 0


def test_without_a_target_a_source_waits_only_as_long_as_the_policy_permits() -> None:
    linger = Linger()
    for _ in range(20):
        linger.adapt(10, 4096, idle=False, permitted=5 * MS)
    assert [linger.wait(permitted) for permitted in (0, 2 * MS, 50 * MS)] == [0, 2 * MS, 5 * MS]
    for _ in range(20):
        linger.adapt(10, 4096, idle=False, permitted=0)
    assert linger.wait(permitted=5 * MS) == 0, "it starts anew when pressure comes back"


@pytest.mark.parametrize("policy", ["rr", "hr", "abd"])
def test_a_source_without_a_target_never_waits_because_others_keep_the_engine_busy(
    stream: MakeStream, clock: ManualClock, policy: str
) -> None:
    busy = Busy(stream, clock, policy=policy, sources=SourceService.BETWEEN_SLICES)
    run = busy.start("q", "readings", class_name="important")
    busy.engine.set_class("important", 6)
    for number in range(50):
        busy.readings.rows((number,))
        busy.work(2)
        assert len(run.answers()) == number + 1, "it may wait for a slice, not for more rows"


def test_an_important_class_waits_a_period_while_another_one_is_behind(
    stream: MakeStream, clock: ManualClock
) -> None:
    busy = Busy(stream, clock, policy="cqc")
    run = busy.start("q", "readings", class_name="important")
    busy.engine.set_class("important", 6)
    for number in range(400):
        busy.readings.rows((number,))
        busy.work(1)
    answered = run.sink.batches[len(run.sink.batches) // 2 :]
    assert 10 <= max(batch.size for batch in answered) <= 13, "10 ms, and the slice of another class"
    assert latency_of(run.query.output.latency).maximum < 13 * MS


def test_a_source_with_a_target_waits_for_larger_batches_under_load(
    stream: MakeStream, clock: ManualClock
) -> None:
    busy = Busy(stream, clock, policy="cqc")
    run = busy.start("q", "readings", class_name="important", latency_target=80_000)
    busy.engine.set_class("important", 6)
    for number in range(200):
        busy.readings.rows((number,))
        busy.work(1)
    (source,) = run.query.network.sources
    assert 4 * len(run.sink.batches) < source.rows_out, "several rows in a batch"
    latency = latency_of(run.query.output.latency)
    assert latency.maximum < 30 * MS, "a quarter of the target, and a few slices"


def test_a_class_that_has_used_up_its_credit_waits_for_larger_batches(
    stream: MakeStream, clock: ManualClock
) -> None:
    busy = Busy(stream, clock, policy="cqc")
    busy.engine.set_class("important", 50)
    busy.start("important", "flood", class_name="important")
    low = [busy.start(f"low{number}", "readings") for number in range(10)]
    for number in range(300):
        busy.readings.rows((number,))
        busy.work(1)
    assert low[0].answers()
    assert sum(len(run.sink.batches) for run in low) < 0.5 * sum(len(run.answers()) for run in low)


@pytest.mark.parametrize("sources", [SourceService.BETWEEN_SLICES, SourceService.PER_CLASS])
def test_trains_are_as_long_as_can_be_processed_in_time(
    stream: MakeStream, clock: ManualClock, sources: SourceService
) -> None:
    readings = stream("readings", "x int")
    engine = Engine(clock, sources=sources)
    engine.attach(readings.name, readings.reader)
    run = run_plan(NODES, "s", [readings], engine=engine)
    cost = {"ns": 100}
    take_time(run.query.network.operators["s"], clock, lambda: cost["ns"])
    for _ in range(40):
        readings.rows(*((number,) for number in range(10_000)))
        engine.run()
    readings.rows(*((number,) for number in range(60_000)))
    sizes = len(run.sink.batches)
    engine.run()
    assert max(batch.size for batch in run.sink.batches[sizes:]) == 4 * 4096, "15,000 rows take 1.5 ms"
    cost["ns"] = 10_000
    readings.rows(*((number,) for number in range(100_000)))
    engine.run()
    assert run.sink.batches[-2].size == 4096, "costly rows: never less than a full train, but no more"
    assert len(run.answers()) == 560_000


def test_a_source_served_by_the_policy_waits_too(stream: MakeStream, clock: ManualClock) -> None:
    busy = Busy(stream, clock, sources=SourceService.PER_CLASS)
    run = busy.start("q", "readings", latency_target=80_000)
    task = run.query.sources["in"]
    task.linger.length = 10 * MS
    busy.work(1)
    busy.readings.rows((1,))
    busy.work(9)
    assert not run.answers()
    busy.work(3)
    assert run.answers() == [(1,)]


@pytest.mark.parametrize("policy", ["rr", "cqc", "abd", "path_capacity"])
def test_a_paused_query_leaves_the_engine_idle(stream: MakeStream, clock: ManualClock, policy: str) -> None:
    readings = stream("readings", "x int")
    engine = Engine(clock, policy, sources=SourceService.PER_CLASS)
    engine.attach(readings.name, readings.reader)
    run = run_plan(NODES, "s", [readings], engine=engine)
    readings.rows((1,))
    engine.step()
    readings.rows((2,))
    engine.pause("q")
    assert engine.run(1000) < 1000
    engine.resume("q")
    readings.rows((3,))
    assert run.rows()[-1] == (3,)
