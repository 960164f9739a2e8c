"""Queries as a service: real catalog, real stream logs, a real engine process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mavstream_protocol import InvalidObject, QueryClass, StreamSpec
from mavstream_protocol.tuples import decode_rows
from mavstream_protocol.wire.resources import ActualState, DesiredState, QueryChange, QueryInfo
from mavstream_server.engine.clock import SystemClock
from mavstream_server.engine.messages import Hello
from mavstream_server.service.catalog import Catalog
from mavstream_server.service.engine_link import EngineLink
from mavstream_server.service.problems import Conflict, NotFound, TooMany, WrongVersion
from mavstream_server.service.qos import TargetState
from mavstream_server.service.queries import QueryService
from mavstream_server.service.settings import Settings
from mavstream_server.service.streams import StreamStore
from mavstream_server.service.subscriptions import LATEST, Subscription

LIMIT = 20  # seconds that no wait here comes near

READINGS = {
    "name": "readings",
    "fields": [
        {"name": "at", "type": "timestamp"},
        {"name": "room", "type": "string"},
        {"name": "temp", "type": "int"},
    ],
    "event_time": "at",
}
HOT_PLAN = {
    "root": "hot",
    "nodes": {
        "in": {"op": "source", "stream": "readings"},
        "hot": {"op": "select", "input": "in", "where": "temp > 20"},
    },
}
WINDOW_PLAN = {
    "root": "mean",
    "nodes": {
        "in": {"op": "source", "stream": "readings"},
        "mean": {
            "op": "aggregate",
            "input": "in",
            "by": ["room"],
            "window": {"kind": "tumbling", "size": "1s", "partial": True},
            "compute": {"n": "count(*)"},
        },
    },
}
HOT = {"name": "hot", "plan": HOT_PLAN}


class Service:
    """All parts of a server but HTTP."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self.settings = Settings(data=data, **settings)
        self.settings.results_directory.mkdir(parents=True, exist_ok=True)
        self.catalog = Catalog(self.settings.catalog_file)
        self.link = EngineLink(Hello(data))
        loop = asyncio.get_running_loop()
        self.streams = StreamStore(
            self.settings, self.catalog, SystemClock(), soon=loop.call_soon, news=self.link.ring
        )
        self.queries = QueryService(self.settings, self.catalog, self.streams, self.link)
        self._sequence = 0

    async def feed(self, *temps: int) -> None:
        """Append a row per temperature, a second apart in event time."""
        self._sequence += 1
        start = self._sequence * 1_000_000_000
        rows = [{"at": start + n * 1_000_000, "room": "hall", "temp": temp} for n, temp in enumerate(temps)]
        batch = decode_rows(self.streams.spec("readings").schema(), rows)
        await self.streams.ingest("tests", "readings", self._sequence, batch, 1000)

    async def answers(self, id_: str, count: int, after: int | None = None) -> list[dict[str, Any]]:
        """Wait until so many rows were answered, and return them."""
        query = self.queries.get(id_)

        def enough() -> bool:
            return self.queries.results.feed(query).end >= count

        await until(enough)
        return list(json.loads(self.queries.results.pull(query, after).json())["rows"])

    async def kill_engine(self) -> None:
        """Kill the engine, and return when there is another one and the queries are in it."""
        pid, restarts = self.link.pid, self.link.restarts
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: self.link.restarts > restarts)
        await asyncio.wait_for(self.queries.placement.settled(), LIMIT)

    async def state(self, id_: str, wanted: ActualState) -> QueryInfo:
        await until(lambda: self.queries.get(id_).state is wanted)
        return await self.queries.info(id_)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not holds():
            await asyncio.sleep(0.002)


@asynccontextmanager
async def service(data: Path, *, engine: bool = True, **settings: Any) -> AsyncIterator[Service]:
    made = Service(data, **settings)
    if "readings" not in made.streams:
        made.streams.create(StreamSpec.model_validate(READINGS))
    try:
        if engine:
            await made.link.start()
        await made.queries.start()
        await asyncio.wait_for(made.queries.placement.settled(), LIMIT)
        yield made
    finally:
        await made.queries.stop()
        await made.link.stop()
        made.streams.close()
        made.catalog.close()


def served(test: Callable[[Service], Awaitable[None]], data: Path, **settings: Any) -> None:
    async def run() -> None:
        async with service(data, **settings) as made:
            await test(made)

    asyncio.run(run())


Run = Callable[[Callable[[Service], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a coroutine function with a service of its own."""
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
        assert (await made.queries.info(info.id)).results == 2

    run(test)


def test_two_queries_of_one_name_get_two_ids(run: Run) -> None:
    async def test(made: Service) -> None:
        ids = {(await made.queries.register(HOT)).id for _ in range(5)}
        assert len(ids) == 5

    run(test)


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"plan": {**HOT_PLAN, "root": "cold"}}, "plan/root", "unknown_node"),
        (
            {
                "plan": {
                    **HOT_PLAN,
                    "nodes": {**HOT_PLAN["nodes"], "hot": {"op": "select", "input": "in", "where": "x"}},  # type: ignore[dict-item]
                }
            },
            "plan/nodes/hot/where",
            "unknown_field",
        ),
        ({"plan": {"root": "in", "nodes": {"in": {"op": "sauce"}}}}, "plan/nodes/in/op", "unknown_operator"),
        ({"plan": 7}, "plan", "invalid_value"),
        ({"qos": {"latency": {"fast": "1s"}}}, "qos/latency", "latency_form"),
        ({"qos": {"memory": {"at_most": "much"}}}, "qos/memory/at_most", "size"),
        ({"class": "nobles"}, "class", "unknown_class"),
        ({"name": "9"}, "name", "name"),
        ({"mode": "sometimes"}, "mode", "invalid_value"),
        ({"mode": "one_time"}, "plan/nodes/in", "one_time_needs_window"),
        ({"colour": 1}, "colour", "unknown_key"),
        ({"name": "\ud800"}, "body", "invalid_text"),
        ({"name": None}, "name", "name"),
    ],
)
def test_each_fault_is_pointed_at_and_nothing_is_kept(
    tmp_path: Path, change: dict[str, Any], pointer: str, code: str
) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False) as made:
            with pytest.raises(InvalidObject) as caught:
                await made.queries.register({**HOT, **change})
            assert [(item.pointer, item.code) for item in caught.value.items] == [(pointer, code)]
            validation = made.queries.validate({**HOT, **change})
            assert not validation.valid
            assert [item.pointer for item in validation.errors] == [pointer]
            assert made.catalog.count_queries() == 0

    asyncio.run(test())


@pytest.mark.parametrize(
    "data", [None, 3, "plan", [], {}, {"name": "a"}, {"nodes": 3}, {"plan": {"nodes": []}}]
)
def test_validation_never_raises(tmp_path: Path, data: object) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False) as made:
            assert not made.queries.validate(data).valid

    asyncio.run(test())


def test_all_faults_come_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False) as made:
            bad = {"name": "7", "plan": {"root": "in", "nodes": {"in": {"op": "sauce"}}}, "mode": 5}
            pointers = {item.pointer for item in made.queries.validate(bad).errors}
            assert pointers == {"name", "plan/nodes/in/op", "mode"}
            worse = {**HOT, "class": "nobles", "plan": {"root": "x", "nodes": {}}}
            assert "plan/nodes" in {item.pointer for item in made.queries.validate(worse).errors}

    asyncio.run(test())


def test_a_valid_plan_is_answered_with_schemas_and_paths(tmp_path: Path) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False) as made:
            for body in (WINDOW_PLAN, {"name": "means", "plan": WINDOW_PLAN}):
                found = made.queries.validate(body)
                assert found.valid
                assert found.paths == (("in", "mean"),)
                names = [field.name for field in found.schemas["mean"]]
                assert names == ["room", "n", "window_start", "window_end"] or set(names) == {
                    "room",
                    "n",
                    "window_start",
                    "window_end",
                }
                json.loads(found.model_dump_json())

    asyncio.run(test())


def test_the_same_idempotency_key_gives_the_same_query(run: Run) -> None:
    async def test(made: Service) -> None:
        first, second = await asyncio.gather(
            made.queries.register(HOT, "k1"), made.queries.register(HOT, "k1")
        )
        assert first.id == second.id
        assert (await made.queries.register(HOT, "k2")).id != first.id
        with pytest.raises(Conflict, match="'k1' was used for another request"):
            await made.queries.register({**HOT, "name": "other"}, "k1")
        await made.queries.remove(first.id)
        with pytest.raises(Conflict, match="which was removed since"):
            await made.queries.register(HOT, "k1")

    run(test)


def test_more_queries_than_allowed_are_refused(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        first = await made.queries.register(HOT)
        await made.queries.register(HOT)
        with pytest.raises(TooMany, match="2 queries are registered"):
            await made.queries.register(HOT)
        await made.queries.remove(first.id)
        await made.queries.register(HOT)

    served(test, tmp_path, max_queries=2)


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


def test_a_query_that_finished_cannot_be_paused_and_says_so(run: Run) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register({**HOT, "plan": WINDOW_PLAN, "mode": "one_time"})).id
        await made.feed(1, 2, 3)
        info = await made.state(id_, ActualState.FINISHED)
        assert info.desired is DesiredState.RUNNING
        with pytest.raises(Conflict, match="has finished and cannot become paused"):
            await made.queries.change(id_, QueryChange(state=DesiredState.PAUSED))
        query = made.queries.get(id_)
        results = made.queries.results
        with Subscription(results, results.feed(query)) as subscription:
            types = []
            while (message := await asyncio.wait_for(subscription.next(), LIMIT)) is not None:
                assert isinstance(message, str)
                types.append(json.loads(message)["type"])
        assert types == ["opened", "rows", "closed"]

    run(test)


def test_a_failed_query_says_why(run: Run) -> None:
    async def test(made: Service) -> None:
        plan = {
            **HOT_PLAN,
            "nodes": {
                **HOT_PLAN["nodes"],
                "hot": {"op": "select", "input": "in", "where": "temp * temp > 1"},
            },  # type: ignore[dict-item]
        }
        id_ = (await made.queries.register({"name": "big", "plan": plan, "on_error": "fail"})).id
        await made.feed(2**62)
        info = await made.state(id_, ActualState.FAILED)
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
        stats = await made.link.stats([id_])
        assert stats.queries[id_].class_name == "alarms"
        with pytest.raises(InvalidObject, match="no class 'nobles'"):
            await made.queries.change(id_, QueryChange.model_validate({"class": "nobles"}))
        page = await made.queries.page(class_="alarms")
        assert [info.id for info in page.items] == [id_]

    run(test)


def test_a_removed_query_is_gone_with_its_files(run: Run) -> None:
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


def test_a_stream_that_was_removed_and_made_again_can_be_read(run: Run) -> None:
    async def test(made: Service) -> None:
        await made.queries.remove((await made.queries.register(HOT)).id)
        await made.link.detach_stream("readings")
        made.streams.remove("readings", made.queries.users("readings"))
        made.streams.create(StreamSpec.model_validate(READINGS))
        info = await made.queries.register(HOT)
        assert info.state is ActualState.RUNNING
        made._sequence = 0
        await made.feed(30)
        assert len(await made.answers(info.id, 1)) == 1

    run(test)


def test_lists_are_paged_by_id_and_filtered(run: Run) -> None:
    async def test(made: Service) -> None:
        ids = sorted([(await made.queries.register({**HOT, "name": f"q{n % 3}"})).id for n in range(7)])
        await made.queries.change(ids[3], QueryChange(state=DesiredState.PAUSED))
        found: list[str] = []
        after: str | None = None
        while True:
            page = await made.queries.page(after, 3)
            found += [info.id for info in page.items]
            after = page.next
            if after is None:
                break
        assert found == ids
        paused = await made.queries.page(state=ActualState.PAUSED)
        assert [info.id for info in paused.items] == [ids[3]]
        assert made.queries.states() == {"running": 6, "paused": 1}

    run(test)


def test_after_the_death_of_the_engine_queries_go_on_under_a_new_epoch(run: Run) -> None:
    async def test(made: Service) -> None:
        hot = (await made.queries.register(HOT)).id
        paused = (await made.queries.register(HOT)).id
        stopped = (await made.queries.register(HOT)).id
        await made.queries.change(paused, QueryChange(state=DesiredState.PAUSED))
        await made.queries.change(stopped, QueryChange(state=DesiredState.STOPPED))
        await made.feed(30)
        await made.answers(hot, 1)
        results = made.queries.results
        with Subscription(results, results.feed(made.queries.get(hot)), LATEST) as subscription:
            await subscription.next()
            await made.kill_engine()
            message = await asyncio.wait_for(subscription.next(), LIMIT)
            gap = json.loads(message or "")
            assert (gap["type"], gap["reason"], gap["epoch"]) == ("gap", "restart", 2)
            assert (gap["start"], gap["stop"]) == (1, 1)
            await made.feed(31)
            rows = json.loads(await asyncio.wait_for(subscription.next(), LIMIT) or "")
            assert (rows["offset"], rows["epoch"], rows["rows"][0]["temp"]) == (1, 2, 31)
        states = [made.queries.get(id_).state for id_ in (hot, paused, stopped)]
        assert states == [ActualState.RUNNING, ActualState.PAUSED, ActualState.STOPPED]
        assert [made.queries.get(id_).epoch for id_ in (hot, paused, stopped)] == [2, 2, 1]

    run(test)


def test_a_query_registered_without_an_engine_starts_with_it_and_misses_no_row(tmp_path: Path) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False) as made:
            info = await made.queries.register(HOT)
            assert info.state is ActualState.STARTING
            assert made.queries.needed_position("readings") == 0
            assert made.queries.held_by("readings") == info.id
            await made.feed(33)
            await made.link.start()
            made.link.on_restart()
            assert [row["temp"] for row in await made.answers(info.id, 1)] == [33]
            assert made.queries.get(info.id).epoch == 1

    asyncio.run(test())


def test_after_a_restart_of_the_server_everything_is_as_it_was(tmp_path: Path) -> None:
    async def first() -> tuple[str, str, str]:
        async with service(tmp_path) as made:
            hot = (await made.queries.register(HOT)).id
            paused = (await made.queries.register(HOT)).id
            ended = (await made.queries.register({"name": "means", "plan": WINDOW_PLAN})).id
            await made.feed(30, 31)
            await made.answers(hot, 2)
            await made.answers(ended, 1)
            await made.queries.change(paused, QueryChange(state=DesiredState.PAUSED))
            await made.queries.change(ended, QueryChange(state=DesiredState.STOPPED))
            return hot, paused, ended

    async def second(hot: str, paused: str, ended: str) -> None:
        async with service(tmp_path) as made:
            made._sequence = 1
            assert (await made.queries.info(hot)).state is ActualState.RUNNING
            assert (await made.queries.info(hot)).epoch == 2
            assert (await made.queries.info(paused)).state is ActualState.PAUSED
            info = await made.queries.info(ended)
            assert info.state is ActualState.STOPPED
            assert info.results == 1
            assert {field.name for field in info.fields} == {"room", "n", "window_start", "window_end"}
            assert [row["n"] for row in await made.answers(ended, 1)] == [1]
            await made.feed(32)
            assert [row["temp"] for row in await made.answers(hot, 3)] == [30, 31]
            assert [row["temp"] for row in await made.answers(hot, 3, after=1)] == [32]
            assert (await made.queries.plan(ended)).paths == (("in", "mean"),)

    asyncio.run(second(*asyncio.run(first())))


def test_queries_of_higher_classes_come_back_first(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        made.catalog.put_class(QueryClass(name="alarms", priority=6))
        ids = [(await made.queries.register({**HOT, "class": name})).id for name in ("default", "alarms") * 3]
        restarted: list[str] = []
        told = made.queries.placement._changed

        def changed(id_: str) -> None:
            restarted.append(id_)
            told(id_)

        made.queries.placement._changed = changed
        await made.kill_engine()
        assert restarted == [*ids[1::2], *ids[::2]]

    served(test, tmp_path)


def test_streams_must_keep_what_the_slowest_query_needs(run: Run) -> None:
    async def test(made: Service) -> None:
        assert made.queries.needed_position("readings") is None
        id_ = (await made.queries.register(HOT)).id
        assert made.queries.needed_position("readings") == 0
        assert made.queries.users("readings") == [id_]
        await made.feed(*range(100))
        await until(lambda: made.queries.needed_position("readings") == 100)
        assert made.streams.info("readings").held_by in (None, id_)
        await made.queries.change(id_, QueryChange(state=DesiredState.STOPPED))
        assert made.queries.needed_position("readings") is None

    run(test)


def test_the_qos_report_tells_kept_from_missed(run: Run) -> None:
    async def test(made: Service) -> None:
        qos = {"latency": {"p95": "10s"}, "memory": {"at_most": "1GB"}, "throughput": {"at_least": 5}}
        easy = (await made.queries.register({**HOT, "qos": qos})).id
        hard = (await made.queries.register({**HOT, "qos": {"latency": {"mean": "1us"}}})).id
        report = await made.queries.qos(easy)
        assert report.targets[0].state is TargetState.UNKNOWN
        await made.feed(30)
        await made.answers(easy, 1)
        await made.answers(hard, 1)
        for id_ in (easy, hard):
            made.queries.measurements.forget(id_)
        report = await made.queries.qos(easy)
        latency, memory, throughput = report.targets
        assert (latency.statistic, latency.target, latency.state) == ("p95", 10_000, TargetState.KEPT)
        assert latency.since is not None
        assert (memory.state, memory.since is None) == (TargetState.KEPT, False)
        assert throughput.objective == "throughput"
        missed = await made.queries.qos(hard)
        assert [t.state for t in missed.targets] == [TargetState.MISSED]
        assert (await made.queries.qos(hard)).targets[0].since == missed.targets[0].since

    run(test)


def test_plans_show_operators_and_edges(run: Run) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register(HOT)).id
        plan = await made.queries.plan(id_)
        assert [operator.name for operator in plan.operators] == ["in", "hot", "#output"]
        edges = [(edge.from_, edge.to) for edge in plan.edges]
        assert edges == [("stream:readings", "in"), ("in", "hot"), ("hot", "#output")]
        whole = await made.queries.global_plan()
        assert whole.streams == {"readings": (id_,)}
        assert whole.model_dump(mode="json")["queries"][0]["edges"][0]["from"] == "stream:readings"
        assert (whole.queries[0].query, whole.next) == (id_, None)

    run(test)


def test_figures_are_asked_for_twice_a_second_at_most(run: Run) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register(HOT)).id
        asked = 0
        stats = made.link.stats

        async def counted(ids: Any = None) -> Any:
            nonlocal asked
            asked += 1
            return await stats(ids)

        made.link.stats = counted  # type: ignore[method-assign]
        began = time.monotonic()
        while time.monotonic() - began < 0.2:
            await made.queries.info(id_)
        assert asked == 1

    run(test)


def test_registering_stays_fast_with_many_queries(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        times = []
        for _ in range(600):
            began = time.perf_counter()
            await made.queries.register(HOT)
            times.append(time.perf_counter() - began)
        early, late = sorted(times[50:150])[50], sorted(times[500:])[50]
        assert late < 2 * early, f"{early * 1000:.2f} ms, then {late * 1000:.2f} ms"

    served(test, tmp_path)
