"""Importance: a stream is as important as the highest class that reads it, whatever changes."""

from __future__ import annotations

from pathlib import Path

from tests.support.services.query_service import HOT, READINGS, Service, served

from mavstream_protocol import StreamSpec
from mavstream_protocol.classes import QueryClass
from mavstream_protocol.wire.resources import ActualState, DesiredState, QueryChange

STREAM = "readings"


def add_classes(made: Service, **priorities: int) -> None:
    for name, priority in priorities.items():
        made.catalog.put_class(QueryClass(name=name, priority=priority))
        made.queries.classes.set_priority(name, priority)


async def register(made: Service, class_name: str, **spec: object) -> str:
    return (await made.queries.register({**HOT, "class": class_name, **spec})).id


def test_a_stream_follows_the_queries_that_read_it(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        importance = made.queries.registry.importance
        add_classes(made, H=6, M=3, N=2)
        made.streams.create(StreamSpec.model_validate({**READINGS, "name": "unread"}))
        assert (importance.of_stream(STREAM), importance.highest) == (0, 0)
        low = await register(made, "N")
        assert (importance.of_stream(STREAM), importance.highest) == (2, 2)
        high = await register(made, "H")
        again = await register(made, "H")
        assert (importance.of_stream(STREAM), importance.highest) == (6, 6)
        assert importance.of_stream("unread") == 0
        assert [importance.of_query(id_) for id_ in (low, high)] == [2, 6]
        await made.queries.remove(again)
        assert importance.of_stream(STREAM) == 6
        await made.queries.change(high, QueryChange(class_="M"))
        assert (importance.of_stream(STREAM), importance.of_query(high), importance.highest) == (3, 3, 3)
        made.queries.query_ended(high, ActualState.FINISHED, None)
        assert (importance.of_stream(STREAM), importance.of_query(high), importance.highest) == (2, 0, 2)
        await made.queries.remove(low)
        assert (importance.of_stream(STREAM), importance.highest) == (0, 0)

    served(test, tmp_path, engine=False)


def test_paused_and_scheduled_queries_do_not_count(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        importance = made.queries.registry.importance
        add_classes(made, H=6, N=2)
        later = await register(made, "H", start_at="2200-01-01T00:00:00Z")
        assert importance.of_stream(STREAM) == 0
        low = await register(made, "N")
        await made.queries.change(low, QueryChange(state=DesiredState.PAUSED))
        assert importance.of_stream(STREAM) == 0
        await made.queries.change(low, QueryChange(state=DesiredState.RUNNING))
        assert importance.of_stream(STREAM) == 2
        await made.queries.change(later, QueryChange(start_at=None))
        assert importance.of_stream(STREAM) == 6

    served(test, tmp_path, engine=False)


def test_a_new_priority_counts_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def change(made: Service) -> None:
        importance = made.queries.registry.importance
        add_classes(made, H=6)
        await register(made, "H")
        version = importance.version
        add_classes(made, H=9)
        assert (importance.of_stream(STREAM), importance.highest) == (9, 9)
        assert importance.version > version

    async def restarted(made: Service) -> None:
        assert made.queries.registry.importance.of_stream(STREAM) == 9

    served(change, tmp_path, engine=False)
    served(restarted, tmp_path, engine=False)


def test_the_version_changes_only_when_an_importance_does(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        importance = made.queries.registry.importance
        add_classes(made, H=6, N=2)
        await register(made, "H")
        version = importance.version
        for _ in range(3):
            await register(made, "N")
        assert importance.version == version

    served(test, tmp_path, engine=False)


def reading(name: str) -> dict[str, object]:
    """Return a plan over the results of a query."""
    nodes = {
        "in": {"op": "source", "query": name},
        "all": {"op": "select", "input": "in", "where": "temp > 21"},
    }
    return {"root": "all", "nodes": nodes}


def test_a_query_and_its_streams_are_as_important_as_what_reads_its_results(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        importance = made.queries.registry.importance
        add_classes(made, H=6, M=3, N=2)
        low = await register(made, "N", name="low")
        middle = await register(made, "N", name="middle", plan=reading("low"))
        assert [importance.of_query(id_) for id_ in (low, middle)] == [2, 2]
        high = await register(made, "H", name="high", plan=reading("middle"))
        assert [importance.of_query(id_) for id_ in (low, middle, high)] == [6, 6, 6]
        assert (importance.of_stream(STREAM), made.streams.info(STREAM).importance) == (6, 6)
        assert made.queries.get(low).class_name == "N"  # its operators run in its own class
        await made.queries.change(high, QueryChange(class_="M"))
        assert [importance.of_query(id_) for id_ in (low, middle)] == [3, 3]
        assert importance.of_stream(STREAM) == 3
        await made.queries.change(high, QueryChange(state=DesiredState.PAUSED))
        assert [importance.of_query(id_) for id_ in (low, middle)] == [2, 2]
        assert importance.of_stream(STREAM) == 2
        await made.queries.change(high, QueryChange(state=DesiredState.RUNNING))
        assert importance.of_query(low) == 3
        await made.queries.remove(high)
        assert [importance.of_query(id_) for id_ in (low, middle)] == [2, 2]

    served(test, tmp_path, engine=False)


def test_importance_through_a_chain_is_there_again_after_a_restart(tmp_path: Path) -> None:
    ids: list[str] = []

    async def registered(made: Service) -> None:
        add_classes(made, H=6, N=2)
        ids.append(await register(made, "N", name="low"))
        await register(made, "H", name="high", plan=reading("low"))

    async def restarted(made: Service) -> None:
        importance = made.queries.registry.importance
        assert (importance.of_query(ids[0]), importance.of_stream(STREAM)) == (6, 6)

    served(registered, tmp_path, engine=False)
    served(restarted, tmp_path, engine=False)
