"""Registration: names, idempotency keys, and the limit of queries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.support.services.query_service import HOT, READINGS, Service, served

from mavstream_protocol import StreamSpec
from mavstream_protocol.wire.resources import DesiredState, QueryChange
from mavstream_server.core.errors import Conflict, NotFound, TooMany
from mavstream_server.queries.planning.validation import InvalidQuery

Run = Callable[[Callable[[Service], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a coroutine function with a new service."""
    return lambda test: served(test, tmp_path)


def test_queries_without_a_name_are_named_after_the_root_of_their_plan(run: Run) -> None:
    async def test(made: Service) -> None:
        infos = [await made.queries.register(HOT) for _ in range(3)]
        assert [info.spec.name for info in infos] == ["hot", "hot_2", "hot_3"]
        assert len({info.id for info in infos}) == 3
        await made.queries.remove("hot_2")
        assert (await made.queries.register(HOT)).spec.name == "hot_4"
        assert (await made.queries.views.info("hot_3")).id == infos[2].id

    run(test)


def test_a_name_belongs_to_one_object_until_that_is_deleted(run: Run) -> None:
    named = {**HOT, "name": "mine"}

    async def test(made: Service) -> None:
        first = await made.queries.register(named, "key")
        assert (await made.queries.register(named, "key")).id == first.id, "the same request, repeated"
        with pytest.raises(Conflict, match=f"query '{first.id}' exists already as 'mine'") as caught:
            await made.queries.register(named)
        assert caught.value.code == "query_exists"
        await made.queries.change("mine", QueryChange(state=DesiredState.STOPPED))
        with pytest.raises(Conflict):
            await made.queries.register(named)
        with pytest.raises(Conflict, match="stream 'mine' cannot have this name, which query"):
            made.streams.create(StreamSpec.model_validate({**READINGS, "name": "mine"}))
        with pytest.raises(Conflict, match="cannot have this name, which stream 'readings' has") as caught:
            await made.queries.register({**HOT, "name": "readings"})
        assert caught.value.code == "name_taken"
        await made.queries.remove("mine")
        made.streams.create(StreamSpec.model_validate({**READINGS, "name": "mine"}))
        made.streams.remove("mine")
        second = await made.queries.register(named)
        assert made.queries.get("mine").id == second.id != first.id

    run(test)


def test_a_name_is_not_an_id(run: Run) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register(HOT)).id
        with pytest.raises(InvalidQuery, match=f"'{id_}' is no.* the id of a query, its name is 'hot'"):
            await made.queries.register({**HOT, "name": id_})
        with pytest.raises(NotFound, match=r"no query 'hat': .* or did you mean 'hot'"):
            made.queries.get("hat")

    run(test)


def test_of_two_queries_registered_at_once_with_one_name_one_is_refused(run: Run) -> None:
    async def test(made: Service) -> None:
        named = [made.queries.register({**HOT, "name": "mine"}) for _ in range(5)]
        found = await asyncio.gather(*named, return_exceptions=True)
        assert sorted(type(one).__name__ for one in found) == ["Conflict"] * 4 + ["QueryInfo"]

    run(test)


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
