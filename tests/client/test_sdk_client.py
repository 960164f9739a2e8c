"""Both clients against a real server."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from mavstream import (
    AsyncClient,
    Client,
    Conflict,
    ConnectFailed,
    Forbidden,
    Invalid,
    InvalidObject,
    InvalidTuples,
    NotAuthorised,
    NotFound,
    Retry,
    RowPage,
    Timeout,
    stream,
)
from mavstream.testing import start_server
from mavstream_protocol import QosSpec
from mavstream_protocol.optimizer import OptimizerSettings

FIELDS = [
    {"name": "id", "type": "int"},
    {"name": "home", "type": "string"},
    {"name": "at", "type": "timestamp"},
]
AT = "2026-01-01T00:00:00.000000Z"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start_server() as found:
        yield found


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as found:
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name unique to the test, as all share one server."""
    return "s_" + request.node.name.partition("[")[0][-60:]


def row(number: int) -> dict[str, Any]:
    return {"id": number, "home": f"h{number % 3}", "at": AT}


def test_a_stream_is_created_described_and_removed(client: Client, name: str) -> None:
    made = client.create_stream(name=name, fields=FIELDS, event_time="at", lateness="2s")
    assert (made.name, made.position, made.spec.event_time) == (name, 0, "at")
    assert client.stream_info(name).spec == made.spec
    assert name in [one.name for one in client.streams()]
    client.delete_stream(name)
    with pytest.raises(NotFound) as caught:
        client.stream_info(name)
    assert caught.value.problem.status == 404


def test_lists_are_read_to_the_last_page(client: Client, name: str) -> None:
    names = [f"{name}_{number:03}" for number in range(103)]
    for each in names:
        client.create_stream(name=each, fields=FIELDS[:1])
    assert [one.name for one in client.streams() if one.name.startswith(f"{name}_")] == names
    for each in names:
        client.delete_stream(each)


def test_a_name_that_is_taken_is_a_conflict(client: Client, name: str) -> None:
    client.create_stream(name=name, fields=FIELDS)
    with pytest.raises(Conflict):
        client.create_stream(name=name, fields=FIELDS)


def test_the_error_for_wrong_fields_has_a_pointer(client: Client) -> None:
    with pytest.raises(Invalid) as caught:
        client.create_stream(name="wrong", fields=[{"name": "a", "type": "integer"}])
    assert any("fields/0/type" in item.pointer for item in caught.value.problem.errors)


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: rows,
        lambda rows: iter(rows),
        lambda rows: {key: [one[key] for one in rows] for key in rows[0]},
        lambda rows: pa.RecordBatch.from_pylist(rows),
        lambda rows: pd.DataFrame(rows).assign(at=pd.Timestamp(AT)),
        lambda rows: [{**one, "at": datetime(2026, 1, 1, tzinfo=UTC)} for one in rows],
    ],
    ids=["rows", "iterator", "columns", "batch", "frame", "datetimes"],
)
def test_rows_are_appended_in_any_form(
    client: Client, name: str, request: pytest.FixtureRequest, make: Callable[[Any], Any]
) -> None:
    own = f"{name[:40]}_{request.node.callspec.id}"
    client.create_stream(name=own, fields=FIELDS)
    query = client.submit(stream(own))
    assert client.append(own, make([row(number) for number in range(7)])) == 7
    assert client.append(own, make([row(number) for number in range(7, 9)])) == 2
    client.complete(own)
    assert list(query.results(timeout=20)) == [row(number) for number in range(9)]


def test_wrong_rows_are_refused_by_the_client_and_nothing_is_appended(client: Client, name: str) -> None:
    client.create_stream(name=name, fields=FIELDS)
    with pytest.raises(InvalidTuples, match="rows/1/id"):
        client.append(name, [row(1), {**row(2), "id": float("nan")}])
    assert client.stream_info(name).position == 0


def test_a_stream_that_was_created_again_has_its_new_fields(client: Client, name: str) -> None:
    client.create_stream(name=name, fields=FIELDS[:1])
    client.append(name, [{"id": 1}])
    with Client(client.url) as another:
        another.delete_stream(name)
        another.create_stream(name=name, fields=FIELDS[1:2])
    assert client.append(name, [{"home": "a"}]) == 1
    with pytest.raises(InvalidTuples):
        client.append(name, [{"id": 1}])


def test_a_query_is_paused_resumed_stopped_and_removed(client: Client, name: str) -> None:
    client.create_stream(name=name, fields=FIELDS)
    client.put_class("alarms", 6, "wakes people up", latency="20ms")
    assert ("alarms", 6, 20_000) in [(one.name, one.priority, one.latency) for one in client.classes()]
    flow = stream(name).where("id > 1")
    query = client.submit(flow, class_="alarms", qos={"latency": {"p95": "50ms"}})
    info = query.info()
    assert (info.spec.class_, info.desired) == ("alarms", "running")
    assert [field.name for field in info.fields] == ["id", "home", "at"]
    assert query.pause().desired == "paused"
    assert query.resume().desired == "running"
    assert query.set_class("default").spec.class_ == "default"
    assert [one.name for one in query.plan().operators] == [name, "select", "#output"]
    assert query.qos().targets[0].statistic == "p95"
    assert query.id in [one.id for one in client.queries()]
    assert client.query(query.id).info().id == query.id
    assert query.stop().desired == "stopped"
    stopped = query.plan()
    states = {one.name: one.state for one in stopped.operators}
    assert states == dict.fromkeys((name, "select", "#output"), "stop")
    assert stopped.segments == ()
    query.delete()
    with pytest.raises(NotFound):
        query.info()


def test_times_and_targets_of_a_scheduled_query_can_be_changed(client: Client, name: str) -> None:
    client.create_stream(name=name, fields=FIELDS)
    query = client.submit(stream(name).where("id > 1"), start_at="2100-01-01T00:00:00Z")
    assert query.info().state == "scheduled"
    assert query.id in [one.id for one in client.queries("scheduled")]
    with pytest.raises(Invalid) as refused:
        query.update(stop_at="2099-01-01T00:00:00Z")
    assert [item.pointer for item in refused.value.problem.errors] == ["stop_at"]
    later = datetime(2101, 1, 1, tzinfo=UTC)
    assert query.update(start_at=later, class_="default").spec.start_at == int(later.timestamp()) * 1_000_000
    assert query.update(start_at=None).state == "running"
    with pytest.raises(Conflict) as late:
        query.update(start_at=later)
    assert late.value.problem.code == "already_started"
    assert query.update(stop_at="2102-01-01T00:00:00Z").spec.stop_at is not None
    assert query.update(stop_at=None, qos=QosSpec(max_loss="5%")).spec.qos.max_loss == 0.05
    assert query.info().spec.stop_at is None
    query.delete()


def test_a_windowed_query_answers(client: Client, name: str) -> None:
    client.create_stream(name=name, fields=FIELDS, event_time="at")
    flow = stream(name).window("1s").by("home").agg(n="count(*)")
    query = client.submit(flow)
    client.append(name, [row(number) for number in range(6)])
    client.complete(name)
    rows = list(query.results(timeout=20))
    assert sorted((one["home"], one["n"]) for one in rows) == [("h0", 2), ("h1", 2), ("h2", 2)]
    assert {one["window_start"] for one in rows} == {AT}


def test_a_query_is_checked_without_being_started(client: Client, name: str) -> None:
    client.create_stream(name=name, fields=FIELDS)
    found = client.validate(stream(name).where("id > 1"))
    assert found.valid
    assert [field.name for field in found.schemas["select"]] == ["id", "home", "at"]
    wrong = client.validate(stream(name).where("temperature > 1"))
    assert not wrong.valid
    assert [item.pointer for item in wrong.errors] == ["nodes/select/where"]
    assert client.validate(stream(name).where("id > 1"), mode="one_time").valid is False


def test_plans_in_files_are_submitted(client: Client, name: str, tmp_path: Path) -> None:
    client.create_stream(name=name, fields=FIELDS)
    file = tmp_path / "all-rows.yaml"
    file.write_text(f"root: in\nnodes:\n  in: {{op: source, stream: {name}}}\n")
    assert client.submit(file).info().spec.name == "all_rows"


def test_a_query_over_an_unknown_stream_is_refused_with_a_pointer(client: Client) -> None:
    with pytest.raises(Invalid) as caught:
        client.submit(stream("nowhere"))
    assert [item.pointer for item in caught.value.problem.errors] == ["plan/nodes/nowhere/stream"]


def test_answers_are_pulled_in_pages(client: Client, name: str) -> None:
    client.create_stream(name=name, fields=FIELDS)
    query = client.submit(stream(name))
    client.append(name, [row(number) for number in range(5)])
    client.complete(name)
    assert len(list(query.results(timeout=20))) == 5
    first = query.pull(limit=2)
    assert [one["id"] for one in first.rows] == [0, 1]
    assert [one["id"] for one in query.pull(after=first.next).rows] == [2, 3, 4]


def test_the_server_reports_limits_classes_metrics_and_plan(client: Client) -> None:
    assert client.ready()
    assert client.info().limits["max_queries"] > 0
    assert "default" in [one.name for one in client.classes()]
    assert client.stats()
    assert client.plan()


def test_the_optimizer_is_configured(client: Client) -> None:
    assert client.set_optimizer(rules={"shedding": False}).settings.rules == {"shedding": False}
    found = client.set_optimizer(enabled=False)
    assert (found.settings.enabled, found.settings.rules) == (False, {"shedding": False}), (
        "other settings are kept"
    )
    assert client.decisions() == client.decisions("nothing") == []
    with pytest.raises(Invalid, match="magic"):
        client.set_optimizer(rules={"magic": True})
    assert client.set_optimizer(enabled=True, rules={}).settings == OptimizerSettings()


def test_the_policy_is_switched(client: Client) -> None:
    assert {"rr", "wrr"} <= {one.name for one in client.policies()}
    assert client.set_scheduler("wrr").policy == "wrr"
    assert client.scheduler().policy == "wrr"
    client.set_scheduler("rr")
    with pytest.raises((Invalid, NotFound), match="guess"):
        client.set_scheduler("guess")


def test_the_async_client_does_the_same(url: str, name: str) -> None:
    async def work() -> list[dict[str, Any]]:
        async with AsyncClient(url) as client:
            await client.create_stream(name=name, fields=FIELDS)
            query = await client.submit(stream(name).where("id > 1"))
            assert (await client.query((await query.info()).spec.name).info()).id == query.id
            assert await client.append(name, [row(number) for number in range(4)]) == 4
            await client.complete(name)
            assert name in [one.name for one in await client.streams()]
            assert (await client.validate(stream(name))).valid
            with pytest.raises(NotFound):
                await client.query("nothing").info()
            return [one async for one in query.results(timeout=20)]

    assert asyncio.run(work()) == [row(2), row(3)]


def test_an_unreachable_server_is_reported() -> None:
    # Port 1 is reserved, and nothing listens there.
    with Client("http://127.0.0.1:1", retry=Retry(attempts=2, first=0.01)) as client:
        with pytest.raises(ConnectFailed, match="start a server with 'mavstream serve', or name another"):
            client.info()
        with pytest.raises(ConnectFailed):
            next(client.results("q"))
        with pytest.raises(ConnectFailed), client.feed("p", ["s"]):
            pass


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(InvalidObject, match="http://HOST:PORT"):
        Client("127.0.0.1:8000")


def test_a_server_that_does_not_answer_times_out() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, timeout=0.05, retry=Retry(attempts=1)) as client, pytest.raises(Timeout):
            client.info()


def test_tokens_and_roles() -> None:
    with start_server(tokens="admin:boss,client:reader,feeder:mouth") as url:
        with Client(url) as nobody, pytest.raises(NotAuthorised):
            nobody.streams()
        with Client(url, token="boss") as boss:
            boss.create_stream(name="s", fields=FIELDS)
            query = boss.submit(stream("s"))
            assert "boss" not in repr(boss.__dict__)
        with Client(url, token="reader") as reader:
            with pytest.raises(Forbidden):
                reader.append("s", [row(1)])
            with pytest.raises(Forbidden), reader.feed("p", ["s"]):
                pass
        with Client(url, token="mouth") as mouth:
            assert mouth.append("s", [row(1)]) == 1
            with pytest.raises(Forbidden):
                next(mouth.results(query.id))
        with Client(url, token="reader") as reader:
            assert next(reader.results(query.id, timeout=20)) == row(1)
        with Client(url) as nobody, pytest.raises(NotAuthorised):
            next(nobody.results(query.id))


def test_servers_for_tests_clean_up_and_report_why_they_fail(tmp_path: Path) -> None:
    from mavstream import CannotStart

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with start_server(tmp_path / "data", max_queries=7) as url, Client(url) as client:
            assert client.info().limits["max_queries"] == 7
    # At once, before another server may get the port.
    with Client(url, retry=Retry(attempts=1)) as client, pytest.raises(ConnectFailed):
        client.ready()
    with pytest.raises(CannotStart, match="there is no policy 'guess'"), start_server(policy="guess"):
        pass


def test_rows_of_a_stream_are_read_page_by_page(client: Client, name: str) -> None:
    client.create_stream(name=name, fields=FIELDS, event_time="at")
    rows = [{"id": n, "home": f"h{n}", "at": AT} for n in range(5)]
    client.append(name, rows)
    first = client.rows(name, limit=3)
    assert (first.rows, first.next, first.end, first.gap) == (rows[:3], 2, 5, None)
    assert first.batch.schema.names == ["id", "home", "at"]
    assert (first.watermark, first.complete) == (AT, False)
    client.complete(name)
    second = client.rows(name, first.next)
    assert (second.rows, second.next, second.complete) == (rows[3:], 4, True)
    assert client.rows(name, second.next).rows == []
    with pytest.raises(Invalid, match="up to position 4"):
        client.rows(name, after=5)
    with pytest.raises(NotFound, match="there is no stream"):
        client.rows("nobody")


async def read_rows(url: str, name: str) -> RowPage:
    async with AsyncClient(url) as client:
        return await client.rows(name, after=0)


def test_the_asyncio_client_reads_rows_of_a_stream(client: Client, url: str, name: str) -> None:
    client.create_stream(name=name, fields=FIELDS)
    client.append(name, [{"id": n, "home": "h", "at": AT} for n in range(3)])
    assert [row["id"] for row in asyncio.run(read_rows(url, name)).rows] == [1, 2]
