"""The query service: queries are registered, changed, removed and described."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.running_server import PATIENCE, until
from tests.support.services.query_service import HOT, HOT_PLAN, READINGS, WINDOW_PLAN, Service, served

from mavstream_protocol import InvalidObject, QueryClass, StreamSpec
from mavstream_protocol.optimizer import TargetState
from mavstream_protocol.wire.qos import QosReport
from mavstream_protocol.wire.resources import ActualState, DesiredState, QueryChange
from mavstream_server.core.clock import SystemClock
from mavstream_server.core.errors import Conflict, NotFound, WrongVersion
from mavstream_server.engine.process.messages import ShedRows
from mavstream_server.optimizer.service import OptimizerService
from mavstream_server.queries.views.metrics import MetricsCache
from mavstream_server.queries.views.qos import QosReports
from mavstream_server.supervisor.scheduler_choice import SchedulerChoice
from mavstream_server.testing import ManualClock

Run = Callable[[Callable[[Service], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a coroutine function with a new service."""
    return lambda test: served(test, tmp_path)


def test_a_registered_query_runs_and_its_answers_can_be_pulled(run: Run) -> None:
    async def test(made: Service) -> None:
        info = await made.queries.register(HOT)
        assert (info.desired, info.state, info.epoch) == (DesiredState.RUNNING, ActualState.RUNNING, 1)
        assert info.id.startswith("hot-")
        assert [field.name for field in info.fields] == ["at", "room", "temp"]
        await made.feed(10, 30, 40)
        rows = await made.answers(info.id, 2)
        assert [row["temp"] for row in rows] == [30, 40]
        assert (await made.queries.views.info(info.id)).results == 2

    run(test)


def test_a_paused_query_sees_no_rows_until_it_is_resumed(run: Run) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register(HOT)).id
        await made.feed(21)
        await made.answers(id_, 1)
        paused = await made.queries.change(id_, QueryChange(state=DesiredState.PAUSED))
        assert (paused.desired, paused.state) == (DesiredState.PAUSED, ActualState.PAUSED)
        await made.feed(22)
        await made.queries.change(id_, QueryChange(state=DesiredState.RUNNING))
        await made.feed(23)
        assert [row["temp"] for row in await made.answers(id_, 2)] == [21, 23]

    run(test)


def test_a_stopped_query_keeps_its_results_and_cannot_run_again(run: Run) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register(HOT)).id
        await made.feed(21)
        await made.answers(id_, 1)
        stopped = await made.queries.change(id_, QueryChange(state=DesiredState.STOPPED))
        assert (stopped.state, stopped.results) == (ActualState.STOPPED, 1)
        again = await made.queries.change(id_, QueryChange(state=DesiredState.STOPPED))
        assert again.state is ActualState.STOPPED
        with pytest.raises(Conflict, match="has been stopped and cannot become running"):
            await made.queries.change(id_, QueryChange(state=DesiredState.RUNNING))
        assert len(await made.answers(id_, 1)) == 1

    run(test)


def test_the_error_for_pausing_a_finished_query_says_so(run: Run) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register({**HOT, "plan": WINDOW_PLAN, "mode": "one_time"})).id
        await made.feed(1, 2, 3)
        info = await made.ended(id_)
        assert (info.desired, info.state) == (DesiredState.RUNNING, ActualState.FINISHED)
        with pytest.raises(Conflict, match="has finished and cannot become paused"):
            await made.queries.change(id_, QueryChange(state=DesiredState.PAUSED))
        with made.subscription(id_) as subscription:
            types = []
            while (message := await asyncio.wait_for(subscription.next(), PATIENCE)) is not None:
                assert isinstance(message, str)
                types.append(json.loads(message)["type"])
        assert types == ["opened", "rows", "closed"]

    run(test)


def test_a_failed_query_reports_its_reason(run: Run) -> None:
    async def test(made: Service) -> None:
        plan = {
            **HOT_PLAN,
            "nodes": {
                **HOT_PLAN["nodes"],
                "hot": {"op": "select", "input": "in", "where": "temp * temp > 1"},
            },
        }
        id_ = (await made.queries.register({"name": "big", "plan": plan, "on_error": "fail"})).id
        await made.feed(2**62)
        info = await made.ended(id_)
        assert info.state is ActualState.FAILED
        assert info.reason is not None
        assert "'hot'" in info.reason

    run(test)


def test_a_change_for_an_old_version_is_refused(run: Run) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register(HOT)).id
        version = made.queries.get(id_).record.version
        await made.queries.change(id_, QueryChange(state=DesiredState.PAUSED), version)
        with pytest.raises(WrongVersion):
            await made.queries.change(id_, QueryChange(state=DesiredState.RUNNING), version)
        with pytest.raises(WrongVersion):
            await made.queries.remove(id_, version)
        assert made.queries.get(id_).state is ActualState.PAUSED

    run(test)


def test_a_query_moves_to_another_class_that_exists(run: Run) -> None:
    async def test(made: Service) -> None:
        made.catalog.put_class(QueryClass(name="alarms", priority=6))
        id_ = (await made.queries.register(HOT)).id
        moved = await made.queries.change(id_, QueryChange.model_validate({"class": "alarms"}))
        assert moved.spec.class_ == "alarms"
        stats = await made.link.metrics([id_])
        assert stats.queries[id_].class_name == "alarms"
        with pytest.raises(InvalidObject, match="no class 'nobles'"):
            await made.queries.change(id_, QueryChange.model_validate({"class": "nobles"}))
        page = await made.queries.views.page(class_="alarms")
        assert [info.id for info in page.items] == [id_]

    run(test)


def test_a_removed_query_is_unknown_and_its_files_are_removed(run: Run) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register(HOT)).id
        await made.feed(30)
        await made.answers(id_, 1)
        path = made.settings.results_directory / id_
        assert path.exists()
        await made.queries.remove(id_)
        assert not path.exists()
        assert made.queries.users("readings") == []
        with pytest.raises(NotFound, match=id_):
            made.queries.get(id_)
        with pytest.raises(NotFound):
            await made.queries.remove(id_)
        assert made.catalog.count_queries() == 0

    run(test)


def test_a_stream_that_was_removed_and_created_again_can_be_read(run: Run) -> None:
    async def test(made: Service) -> None:
        await made.queries.remove((await made.queries.register(HOT)).id)
        await made.link.detach_stream("readings")
        made.streams.remove("readings", made.queries.users("readings"))
        made.streams.create(StreamSpec.model_validate(READINGS))
        info = await made.queries.register(HOT)
        assert info.state is ActualState.RUNNING
        made.sequence = 0
        await made.feed(30)
        assert len(await made.answers(info.id, 1)) == 1

    run(test)


def test_lists_are_paged_by_id_and_filtered(run: Run) -> None:
    async def test(made: Service) -> None:
        ids = sorted([(await made.queries.register({**HOT, "name": f"q{n}"})).id for n in range(7)])
        await made.queries.change(ids[3], QueryChange(state=DesiredState.PAUSED))
        found: list[str] = []
        after: str | None = None
        while True:
            page = await made.queries.views.page(after, 3)
            found += [info.id for info in page.items]
            after = page.next
            if after is None:
                break
        assert found == ids
        paused = await made.queries.views.page(state=ActualState.PAUSED)
        assert [info.id for info in paused.items] == [ids[3]]
        assert made.queries.registry.states() == {"running": 6, "paused": 1}

    run(test)


def test_streams_keep_the_rows_that_the_slowest_query_needs(run: Run) -> None:
    async def test(made: Service) -> None:
        assert made.parts.readers.needed_position("readings") is None
        id_ = (await made.queries.register(HOT)).id
        assert made.parts.readers.needed_position("readings") == 0
        assert made.queries.users("readings") == [id_]
        await made.feed(*range(100))
        await until(lambda: made.parts.readers.needed_position("readings") == 100, "all rows to be read")
        assert made.streams.info("readings").held_by in (None, id_)
        await made.queries.change(id_, QueryChange(state=DesiredState.STOPPED))
        assert made.parts.readers.needed_position("readings") is None

    run(test)


class Optimized:
    """The optimizer of a service, a round at a time, and its reports."""

    def __init__(self, made: Service) -> None:
        self._made = made
        choice = SchedulerChoice(made.catalog, made.settings, made.link)
        self.optimizing = OptimizerService(made.link, choice, made.queries, SystemClock())
        self._reports = QosReports(self.optimizing)

    async def report(self, id_: str) -> QosReport:
        self._made.queries.metrics.forget(id_)
        stats = await self._made.queries.metrics.of((id_,))
        return self._reports.report(self._made.queries.get(id_), stats.get(id_))


def test_the_qos_report_distinguishes_kept_and_missed_targets(run: Run) -> None:
    async def test(made: Service) -> None:
        optimized = Optimized(made)
        qos = {"latency": {"p95": "10s"}, "memory": {"at_most": "1GB"}, "throughput": {"at_least": 5}}
        easy = (await made.queries.register({**HOT, "qos": qos})).id
        hard = (await made.queries.register({**HOT, "qos": {"latency": {"mean": "1us"}}})).id
        plain = (await made.queries.register(HOT)).id
        assert {target.state for target in (await optimized.report(easy)).targets} == {TargetState.UNKNOWN}
        await made.feed(30)
        for id_ in (easy, hard, plain):
            await made.answers(id_, 1)
        for _ in range(3):
            await optimized.optimizing.round()
        report = await optimized.report(easy)
        latency, memory, throughput = report.targets
        assert (latency.statistic, latency.target, latency.state) == ("p95", 10_000, TargetState.KEPT)
        assert latency.since is not None
        assert (latency.history[-1].after, latency.history[-1].at) == (TargetState.KEPT, latency.since)
        assert (memory.state, memory.since is None) == (TargetState.KEPT, False)
        assert throughput.objective == "throughput"
        missed = await optimized.report(hard)
        assert [target.state for target in missed.targets] == [TargetState.MISSED]
        assert [state.after for state in missed.targets[0].history] == [
            TargetState.AT_RISK,
            TargetState.MISSED,
        ]
        without = await optimized.report(plain)
        assert (without.targets, without.results, without.shed.rows) == ((), 1, 0)
        assert without.latency_ms is not None
        assert without.latency_ms.count == 1

    run(test)


def test_shed_rows_are_counted_and_the_share_is_sent_to_a_new_engine(run: Run) -> None:
    async def test(made: Service) -> None:
        optimized = Optimized(made)
        enactor = optimized.optimizing.enactor
        id_ = (await made.queries.register({**HOT, "qos": {"max_loss": "50%"}})).id
        await optimized.optimizing.round()
        await enactor.enact(ShedRows(id_, 0.5))
        await made.feed(*[30] * 1000)
        await until(lambda: made.parts.readers.needed_position("readings") == 1000, "all rows to be read")
        report = await optimized.report(id_)
        assert 400 < report.shed.rows < 600
        (interval,) = report.shed.spells
        assert (report.shed.share, interval.share, interval.stream) == (0.5, 0.5, "readings")
        assert (interval.seen, interval.rows) == (1000, report.shed.rows)
        await made.kill_engine()
        await optimized.optimizing.round()
        assert (await made.link.target_metrics([id_]))[id_].share == 0.5

    run(test)


def test_plans_show_operators_and_edges(run: Run) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register(HOT)).id
        plan = await made.queries.views.plan(id_)
        assert [operator.name for operator in plan.operators] == ["in", "hot", "#output"]
        edges = [(edge.from_, edge.to) for edge in plan.edges]
        assert edges == [("stream:readings", "in"), ("in", "hot"), ("hot", "#output")]
        whole = await made.queries.views.global_plan()
        assert whole.streams == {"readings": (id_,)}
        assert whole.model_dump(mode="json")["queries"][0]["edges"][0]["from"] == "stream:readings"
        assert (whole.queries[0].query, whole.next) == (id_, None)

    run(test)


def test_plans_show_shared_prefixes_and_members(run: Run) -> None:
    async def test(made: Service) -> None:
        ids = [(await made.queries.register(HOT)).id for _ in range(2)]
        await made.feed(30)
        for id_ in ids:
            await made.answers(id_, 1)
        shared: list[tuple[int, tuple[str, ...]]] = []
        while not shared or shared[1][0] == 1:
            made.queries.metrics.forget(ids[0])
            plan = await made.queries.views.plan(ids[0])
            shared = [(operator.sharers, operator.shared_with) for operator in plan.operators]
        assert shared == [(2, (ids[1],)), (2, (ids[1],)), (1, ())]
        made.queries.metrics.forget(ids[1])
        whole = await made.queries.views.global_plan()
        shared = {query.query: query.operators[1].shared_with for query in whole.queries}
        assert shared == {ids[0]: (ids[1],), ids[1]: (ids[0],)}

    run(test)


def test_metrics_are_cached_for_half_a_second(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register(HOT)).id
        cache = MetricsCache(made.link, lambda: clock.monotonic() / 1e9)

        async def answered() -> int:
            return (await cache.of((id_,)))[id_].offset

        assert await answered() == 0
        await made.feed(30)
        await made.answers(id_, 1)
        clock.advance(seconds=0.49)
        assert await answered() == 0
        clock.advance(seconds=0.01)
        assert await answered() == 1
        await made.feed(31)
        await made.answers(id_, 2)
        assert await answered() == 1
        cache.forget(id_)
        assert await answered() == 2

    run(test)
