"""Replacement of a running query: the seam in its results, and which plan it has after a crash."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.running_server import until
from tests.support.services.query_service import HOT_PLAN, READINGS, Service, served

from mavstream_protocol import StreamSpec
from mavstream_protocol.plans.plan import Plan, SelectNode
from mavstream_protocol.tuples import decode_rows
from mavstream_protocol.wire.resources import DesiredState, QueryChange
from mavstream_protocol.wire.stream_change import StreamChange
from mavstream_server.core.errors import Conflict, NotFound, Refused, StorageFull, WrongVersion
from mavstream_server.core.storage.failpoints import ONCE_VARIABLE, VARIABLE
from mavstream_server.queries.planning.validation import InvalidQuery
from mavstream_server.supervisor.engine_link import EngineRefused, EngineUnavailable

Run = Callable[[Callable[[Service], Coroutine[Any, Any, None]]], None]


def above(limit: int, **parts: Any) -> dict[str, Any]:
    nodes = {**HOT_PLAN["nodes"], "hot": {"op": "select", "input": "in", "where": f"temp > {limit}"}}
    return {"plan": {"root": "hot", "nodes": nodes}, **parts}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda test: served(test, tmp_path)


def condition(plan: Plan) -> str:
    """Return the condition of the select that `above` makes."""
    node = plan.nodes["hot"]
    assert isinstance(node, SelectNode)
    return node.where


async def temps(made: Service, count: int) -> list[int]:
    return [row["temp"] for row in await made.answers("mine", count)]


def all_temps(made: Service) -> list[int]:
    """Return all stored answers, pulled in pages, each of one plan."""
    found: list[int] = []
    after: int | None = None
    while True:
        page = json.loads(made.queries.results.pull(made.queries.get("mine"), after, 10).json())
        found += [row["temp"] for row in page["rows"]]
        if not page["rows"]:
            return found
        after = page["next"]


def test_a_put_query_is_registered_and_then_replaced_while_it_runs(run: Run) -> None:
    async def test(made: Service) -> None:
        info, created = await made.queries.put("mine", above(20))
        assert (created, info.spec.name, info.revision) == (True, "mine", 0)
        await made.feed(19, 25, 35)
        assert await temps(made, 2) == [25, 35]
        with made.subscription("mine", "latest") as open_before:
            assert json.loads(await open_before.next() or "")["type"] == "opened"
            info, created = await made.queries.put("mine", above(30, name="mine"))
            assert (created, info.revision, info.epoch, info.state.value) == (False, 1, 1, "running")
            told = json.loads(await open_before.next() or "")
            assert {key: told[key] for key in ("type", "offset", "epoch", "revision")} == {
                "type": "replaced", "offset": 2, "epoch": 1, "revision": 1,
            }  # fmt: skip
            assert [field["name"] for field in told["fields"]] == ["at", "room", "temp"]
            await made.feed(25, 31)
            assert json.loads(await open_before.next() or "")["offset"] == 2
        assert await temps(made, 3) == [25, 35]  # a page has rows of one plan
        assert all_temps(made) == [25, 35, 31]
        plan = await made.queries.views.plan("mine")
        assert (condition(plan.plan), plan.running) == ("temp > 30", None)
        types: list[Any] = []
        with made.subscription("mine") as again:
            while "rows" not in types[2:]:
                types.append(json.loads(await again.next() or "")["type"])
        assert types == ["opened", "rows", "replaced", "rows"]
        await made.kill_engine()
        await made.feed(29, 32)
        await temps(made, 4)
        assert all_temps(made) == [25, 35, 31, 32]
        assert (await made.queries.views.info("mine")).epoch == 1

    run(test)


def narrow(limit: int, column: str = "degrees") -> dict[str, Any]:
    """Return a query that answers one column."""
    nodes = {
        **above(limit)["plan"]["nodes"],
        "p": {"op": "project", "input": "hot", "compute": {column: "temp"}},
    }
    return {"plan": {"root": "p", "nodes": nodes}}


def test_a_query_goes_on_with_other_columns_and_earlier_answers_keep_theirs(run: Run) -> None:
    async def test(made: Service) -> None:
        await made.queries.put("mine", above(20))
        await made.feed(19, 25, 35)
        await temps(made, 2)
        with made.subscription("mine", "latest") as open_before:
            await open_before.next()
            info, _ = await made.queries.put("mine", narrow(30))
            assert [each.name for each in info.fields or ()] == ["degrees"]
            told = json.loads(await open_before.next() or "")
            assert (told["type"], told["offset"]) == ("replaced", 2)
            assert told["fields"] == [{"name": "degrees", "type": "int", "nullable": False}]
            await made.feed(31)
            assert json.loads(await open_before.next() or "")["rows"] == [{"degrees": 31}]
        await made.queries.put("mine", narrow(30, "temp"))
        await made.kill_engine()
        await made.feed(32)
        await until(lambda: made.queries.results.of(made.queries.get("mine")).end == 4, "the last answer")
        types: list[Any] = []
        with made.subscription("mine") as again:
            while len(types) < 6:
                message = json.loads(await again.next() or "")
                names = message.get("fields") or message.get("rows")
                types.append(
                    (message["type"], list(names[0]) if "rows" in message else [f["name"] for f in names])
                )
        wide = ["at", "room", "temp"]
        assert types == [
            ("opened", wide),
            ("rows", wide),
            ("replaced", ["degrees"]),
            ("rows", ["degrees"]),
            ("replaced", ["temp"]),
            ("rows", ["temp"]),
        ]
        pages = [
            made.queries.results.pull(made.queries.get("mine"), after, metadata=True)
            for after in (None, 1, 2)
        ]
        assert [page.schema.names[:-4] for page in pages] == [tuple(wide), ("degrees",), ("temp",)]
        assert [json.loads(page.json())["revision"] for page in pages] == [0, 1, 2]

    run(test)


def test_who_reads_results_from_the_earliest_gets_those_with_the_present_columns(run: Run) -> None:
    async def test(made: Service) -> None:
        await made.queries.put("mine", above(20))
        await made.feed(25, 35)
        await temps(made, 2)
        await made.queries.put("mine", narrow(30))
        await made.feed(31)
        source = {"op": "source", "query": "mine"}
        sums = {"op": "select", "input": "in", "where": "degrees > 0"}
        reader = {"plan": {"root": "out", "nodes": {"in": source, "out": sums}}, "from": "earliest"}
        await made.queries.put("reader", reader)
        assert await made.answers("reader", 1) == [{"degrees": 31}]
        with pytest.raises(Conflict, match="are read by"):
            await made.queries.put("mine", above(20))

    run(test)


def test_what_cannot_be_replaced_is_refused_and_the_query_goes_on(run: Run) -> None:
    async def test(made: Service) -> None:
        info, _ = await made.queries.put("mine", above(20))
        with pytest.raises(Conflict, match="runs continuously, and mode says one_time"):
            await made.queries.put("mine", counted("readings") | {"mode": "one_time"})
        with pytest.raises(Conflict, match="a start time can be changed while the query is scheduled"):
            await made.queries.put("mine", above(30, start_at="2100-01-01T00:00:00Z"))
        absent = json.loads(json.dumps(above(30)).replace("readings", "absent"))
        with pytest.raises(InvalidQuery, match="absent"):
            await made.queries.put("mine", absent)
        sums = {"plan": above(30)["plan"] | {"nodes": failing(), "root": "p"}, "on_error": "fail"}
        await made.feed(25)
        with pytest.raises(EngineRefused, match="the new plan failed on earlier rows"):
            await made.queries.put("mine", sums)
        with pytest.raises(Refused, match="the address names query 'mine' and the body 'other'"):
            await made.queries.put("mine", above(30, name="other"))
        with pytest.raises(WrongVersion):
            await made.queries.put("mine", above(30), version=7)
        with pytest.raises(NotFound):
            await made.queries.put("mine-abcdef", above(30))
        assert made.catalog.replacement(info.id) is None
        await made.feed(26)
        assert await temps(made, 2) == [25, 26]

    run(test)


def test_a_paused_query_stays_paused_and_goes_on_with_the_new_plan(run: Run) -> None:
    async def test(made: Service) -> None:
        await made.queries.put("mine", above(20))
        await made.feed(25)
        await temps(made, 1)
        await made.queries.change("mine", QueryChange(state=DesiredState.PAUSED))
        await made.feed(26, 36)
        info, _ = await made.queries.put("mine", above(30))
        assert (info.state.value, info.revision, info.epoch) == ("paused", 1, 1)
        await made.kill_engine()
        assert (await made.queries.views.info("mine")).state.value == "paused"
        await made.feed(37)
        await made.queries.change("mine", QueryChange(state=DesiredState.RUNNING))
        await made.feed(27, 38)
        await temps(made, 2)
        assert all_temps(made) == [25, 38]
        assert (await made.queries.views.info("mine")).epoch == 1

    run(test)


def failing() -> dict[str, Any]:
    """Return a plan whose windows need the rows before the seam, which fail."""
    window = {"kind": "tumbling", "size": "10s"}
    return {
        "in": HOT_PLAN["nodes"]["in"],
        "bad": {"op": "project", "input": "in", "compute": {"at": "at", "root": "sqrt(0 - temp)"}},
        "p": {"op": "aggregate", "input": "bad", "window": window, "compute": {"sum": "sum(root)"}},
    }


def counted(stream: str, size: str = "10s") -> dict[str, Any]:
    window = {"kind": "tumbling", "size": size}
    count = {"op": "aggregate", "input": "in", "window": window, "compute": {"n": "count()"}}
    return {"plan": {"root": "n", "nodes": {"in": {"op": "source", "stream": stream}, "n": count}}}


def test_windows_that_reach_back_over_the_seam_are_answered_whole(run: Run) -> None:
    async def test(made: Service) -> None:
        await made.queries.put("mine", above(20))
        await made.feed(21, 22, 23)
        await temps(made, 3)
        info, _ = await made.queries.put("mine", counted("readings"))
        assert info.revision == 1
        await made.kill_engine()
        await made.feed(1)
        assert (await made.answers("mine", 4, 2))[0]["n"] == 3
        assert (await made.queries.views.info("mine")).epoch == 1

    run(test)


def reading(name: str, kind: str) -> dict[str, Any]:
    """Return a query that reads another one, as a query or as a stream."""
    nodes = {
        "in": {"op": "source", kind: name},
        "out": {"op": "select", "input": "in", "where": "temp > 0"},
    }
    return {"plan": {"root": "out", "nodes": nodes}}


def test_a_query_becomes_a_derived_stream_and_is_none_any_more(run: Run) -> None:
    async def test(made: Service) -> None:
        await made.queries.put("mine", above(20))
        await made.queries.put("below", reading("mine", "query"))
        assert not made.queries.views.derived_streams()
        info, _ = await made.queries.put("mine", above(20, derive=True))
        assert (info.revision, info.spec.derive) == (0, True), "its plan goes on"
        assert list(made.queries.views.derived_streams()) == ["mine"]
        reader, _ = await made.queries.put("reader", reading("mine", "stream"))
        for again in (above(20), above(30)):
            with pytest.raises(Conflict, match=f"is read as a stream by '{reader.id}'"):
                await made.queries.put("mine", again)
        await made.queries.put("reader", reading("mine", "query"))
        info, _ = await made.queries.put("mine", above(30))
        assert (info.revision, info.spec.derive) == (1, False)
        assert not made.queries.views.derived_streams()
        await made.feed(25, 35)
        assert [row["temp"] for row in await made.answers("reader", 1)] == [35]
        assert [row["temp"] for row in await made.answers("below", 1)] == [35]

    run(test)


def test_a_query_that_reads_another_one_than_before_does_not_keep_the_former(run: Run) -> None:
    async def test(made: Service) -> None:
        first, _ = await made.queries.put("first", above(10))
        second, _ = await made.queries.put("second", above(20))
        middle, _ = await made.queries.put("middle", reading("first", "query"))
        last, _ = await made.queries.put("last", reading("middle", "query"))
        await made.queries.put("middle", reading("second", "query"))
        assert (await made.queries.views.info("first")).read_by == ()
        assert (await made.queries.views.info("second")).read_by == (middle.id,)
        assert made.queries.get("last").origins == {"readings", second.id, middle.id}
        assert made.queries.users(first.id) == []
        assert set(made.queries.users(second.id)) == {middle.id, last.id}
        await made.queries.remove("first")
        with pytest.raises(Conflict, match="would read itself through 'last'"):
            await made.queries.put("second", reading("last", "query"))

    run(test)


def test_who_reads_on_is_told_which_rows_a_new_plan_lacks(tmp_path: Path) -> None:
    wet = StreamChange.model_validate({"add_fields": [{"name": "wet", "type": "bool", "nullable": True}]})

    async def test(made: Service) -> None:
        await made.queries.put("mine", above(20))
        await made.feed(21, 22)
        await made.feed(23, 24)
        made.streams.change("readings", wet)  # in a new segment
        await made.feed(25)
        await temps(made, 5)
        info, _ = await made.queries.put("mine", above(20, on_error="skip"))
        assert info.seam is not None
        assert (info.seam.revision, info.seam.offset, info.seam.not_retained) == (1, 5, ())
        writer = made.streams._log("readings").writer
        assert writer is not None
        writer.remove_before(writer.segments[-1].serial)
        with made.subscription("mine", "latest") as open_before:
            await open_before.next()
            info, _ = await made.queries.put("mine", counted("readings", "5000s"))
            told = json.loads(await open_before.next() or "")
        # The rows of the second feed begin at 2000 s.
        lacking = {"stream": "readings", "first": 4, "until": "1970-01-01T00:33:21.000000Z"}
        assert told["not_retained"] == [lacking]
        assert info.seam is not None
        assert [one.model_dump() for one in info.seam.not_retained] == [lacking]

    async def again(made: Service) -> None:
        seam = (await made.queries.views.info("mine")).seam
        assert seam is not None
        assert [str(one) for one in seam.not_retained] == [
            "rows of readings before position 4, with times up to 1970-01-01T00:33:21.000000Z, are not "
            "stored any more: windows that begin by then are not answered, and pairs with them are missing"
        ]

    served(test, tmp_path)
    served(again, tmp_path)


def projected(**compute: str) -> dict[str, Any]:
    """Return a query with these columns, besides the time."""
    project = {"op": "project", "input": "in", "compute": {"at": "at", **compute}}
    return {"plan": {"root": "p", "nodes": {"in": HOT_PLAN["nodes"]["in"], "p": project}}}


def test_columns_of_results_may_change_that_no_reader_uses(tmp_path: Path) -> None:
    only = {"op": "project", "input": "in", "compute": {"temp": "temp"}}
    temp = {"plan": {"root": "out", "nodes": {"in": {"op": "source", "query": "mine"}, "out": only}}}

    async def first(made: Service) -> None:
        await made.queries.put("mine", projected(room="room", temp="temp"))
        star, _ = await made.queries.put("star", reading("mine", "query"))
        some, _ = await made.queries.put("some", temp)
        await made.feed(21)
        await made.answers("star", 1)
        await made.queries.put("mine", projected(twice="temp * 2", room="room", temp="temp"))
        await made.feed(22)
        assert list((await made.answers("star", 2))[1]) == ["at", "room", "temp"]
        with pytest.raises(
            Conflict, match=f"'{star.id}', which expects the column room string, which the new"
        ):
            await made.queries.put("mine", projected(temp="temp"))
        await made.queries.put("wide", reading("mine", "query"))
        assert made.queries.get("wide").schema.names == ("at", "twice", "room", "temp")
        with pytest.raises(Conflict, match="expects the column twice int null, got twice float null"):
            await made.queries.put("mine", projected(twice="temp * 2.0", room="room", temp="temp"))
        await made.queries.remove("wide")
        await made.kill_engine()
        await made.feed(23)
        assert [row["temp"] for row in await made.answers("star", 3)] == [21, 22, 23]
        assert some.epoch == made.queries.get("some").epoch

    async def second(made: Service) -> None:
        made.sequence = 3
        assert made.queries.get("star").schema.names == ("at", "room", "temp")
        await made.queries.remove("star")
        await made.queries.put("mine", projected(temp="temp", other="1"))
        with pytest.raises(Conflict, match="which expects the column temp int, got temp float null"):
            await made.queries.put("mine", projected(temp="temp * 1.0"))
        await made.feed(24)
        assert [row["temp"] for row in await made.answers("some", 4)] == [21, 22, 23, 24]
        await made.kill_engine()
        await made.feed(25)
        assert [row["temp"] for row in await made.answers("some", 5)] == [21, 22, 23, 24, 25]
        info = await made.queries.views.info("some")
        assert (info.epoch, [each.name for each in info.fields]) == (1, ["temp"])

    served(first, tmp_path)
    served(second, tmp_path)


def test_a_query_goes_on_with_other_streams(run: Run) -> None:
    async def test(made: Service) -> None:
        made.streams.create(StreamSpec.model_validate({**READINGS, "name": "other"}))

        async def feed_other(sequence: int, *temps: int) -> None:
            rows = [
                {"at": sequence * 1_000_000_000 + n * 1_000_000, "room": "attic", "temp": temp}
                for n, temp in enumerate(temps)
            ]
            batch = decode_rows(made.streams.spec("other").schema(), rows)
            await made.streams.enqueuer.ingest("tests", "other", sequence, batch, 1000)

        await made.queries.put("mine", above(20))
        await made.feed(21, 22, 23)
        await feed_other(1, 31, 32)
        await temps(made, 3)
        await made.queries.put("mine", counted("other"))
        assert made.queries.users("other") == [made.queries.get("mine").id]
        assert made.queries.users("readings") == []
        await made.kill_engine()
        await made.feed(24)
        await feed_other(2, 33)
        assert (await made.answers("mine", 4, 2))[0]["n"] == 2
        other = {"op": "source", "stream": "other"}
        join = {
            "op": "join", "left": "in", "right": "other", "within": "1500s", "where": "l.temp < r.temp",
            "compute": {"low": "l.temp", "high": "r.temp"},
        }  # fmt: skip
        nodes = {"in": HOT_PLAN["nodes"]["in"], "other": other, "j": join}
        info, _ = await made.queries.put(
            "mine", {"plan": {"root": "j", "nodes": nodes}, "memory_limit": "16MB"}
        )
        assert (info.revision, info.spec.memory_limit) == (2, 16_000_000)
        await feed_other(3, 34)
        await made.feed(30)
        await made.feed(31)
        pairs = sorted((row["low"], row["high"]) for row in await made.answers("mine", 8, 3))
        # Each with a row from behind the seam; (24, 33) lies before it.
        assert pairs == [(24, 34), (30, 33), (30, 34), (31, 34)]

    run(test)


def test_other_options_of_the_same_plan_are_a_replacement_too(run: Run) -> None:
    async def test(made: Service) -> None:
        await made.queries.put("mine", above(20))
        info, _ = await made.queries.put("mine", above(20, on_error="skip", memory_limit="16MB"))
        assert (info.revision, info.spec.on_error.value, info.spec.memory_limit) == (1, "skip", 16_000_000)
        await made.feed(21)
        await temps(made, 1)
        await made.kill_engine()
        await made.feed(22)
        await temps(made, 2)
        assert (await made.queries.views.info("mine")).epoch == 1

    run(test)


def test_the_same_plan_with_other_options_is_a_change(run: Run) -> None:
    async def test(made: Service) -> None:
        await made.queries.put("mine", above(20))
        targets = {"latency": {"p95": "50ms"}}
        info, _ = await made.queries.put("mine", above(20, qos=targets, **{"from": "earliest"}))
        assert (info.revision, info.spec.qos.latency is not None, info.spec.from_.value) == (0, True, "now")
        info, _ = await made.queries.put("mine", above(30))
        assert (info.revision, info.spec.qos.latency) == (1, None)

    run(test)


@pytest.mark.parametrize(("end", "replaced"), [("before", False), ("after", True)])
def test_the_checkpoint_decides_which_plan_goes_on_after_a_crash_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, replaced: bool
) -> None:
    # The first checkpoint in the engine is that of the start.
    monkeypatch.setenv(VARIABLE, f"engine:checkpoint.rename.{end}=kill@2")
    monkeypatch.setenv(ONCE_VARIABLE, str(tmp_path / "once"))
    (tmp_path / "once").mkdir()

    async def test(made: Service) -> None:
        await made.queries.put("mine", above(20))
        await made.feed(25, 35)
        await temps(made, 2)
        with pytest.raises(EngineUnavailable):
            await made.queries.put("mine", above(30))
        await until(lambda: made.link.restarts == 1 and made.queries.get("mine").placed, "the next engine")
        query = made.queries.get("mine")
        assert query.revision == replaced
        assert condition(query.record.spec.plan) == ("temp > 30" if replaced else "temp > 20")
        await made.feed(26, 36)
        await temps(made, 3 if replaced else 4)
        assert all_temps(made) == ([25, 35, 36] if replaced else [25, 35, 26, 36])
        assert query.epoch == 1
        info, _ = await made.queries.put("mine", above(40))
        await made.feed(39, 41)
        await temps(made, info.results + 1)
        assert all_temps(made)[-1] == 41

    served(test, tmp_path / "data")


def test_a_replacement_that_the_server_did_not_complete_is_completed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def first(made: Service) -> None:
        await made.queries.put("mine", above(20))
        await made.feed(25, 35)
        await temps(made, 2)

        def full(*_: object) -> None:
            raise StorageFull("the disk is full")

        monkeypatch.setattr(made.catalog, "complete_replacement", full)
        with pytest.raises(StorageFull):
            await made.queries.put("mine", above(30))
        assert made.queries.get("mine").revision == 0

    async def second(made: Service) -> None:
        query = made.queries.get("mine")
        assert query.revision == 1
        made.sequence = 1
        await made.feed(26, 36)
        await temps(made, 3)
        assert all_temps(made) == [25, 35, 36]
        # What is begun from here on never reaches the engine.
        made.catalog.begin_replacement(query.id, query.record.spec.model_copy(update={"name": "never"}), {})

    async def third(made: Service) -> None:
        query = made.queries.get("mine")
        assert (query.revision, made.catalog.replacement(query.id)) == (1, None)

    served(first, tmp_path)
    served(second, tmp_path)
    served(third, tmp_path)
