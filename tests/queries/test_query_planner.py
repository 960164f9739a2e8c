"""Large queries: planned in another process, with the same answers, even if streams change meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.services.query_service import HOT, READINGS, Service, service

from mavstream_protocol import StreamSpec
from mavstream_protocol.errors import InvalidObject
from mavstream_protocol.wire.resources import ActualState
from mavstream_server.core.errors import Conflict, Refused
from mavstream_server.queries.planning.json_body import JsonBody
from mavstream_server.queries.planning.query_size import is_large
from mavstream_server.queries.planning.validation import described, plan_query


def run(folder: Path, test: Callable[[Service], Awaitable[None]]) -> None:
    async def main() -> None:
        async with service(folder) as made:
            await test(made)

    asyncio.run(main())


def large_plan(columns: int = 64, terms: int = 8) -> dict[str, Any]:
    compute = {f"c{n}": "+".join(["temp"] * terms) + f"+{n}" for n in range(columns)}
    nodes = {
        "in": {"op": "source", "stream": "readings"},
        "out": {"op": "project", "input": "in", "compute": compute},
    }
    return {"root": "out", "nodes": nodes}


LARGE = {"name": "large", "plan": large_plan()}


def test_only_large_queries_are_large() -> None:
    assert not is_large(HOT)
    assert is_large(LARGE)
    assert is_large({"nodes": [[]] * 5000})
    assert not is_large(JsonBody(b"{}"))


def test_the_process_that_plans_imports_little() -> None:
    code = (
        "import sys, mavstream_server.queries.planning.work as work\n"
        "heavy = ['pyarrow', *(f'mavstream_server.{part}' for part in ('ingest', 'log', 'supervisor'))]\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_large_query_is_answered_as_a_small_one_would_be(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        found = (await made.queries.validate(LARGE)).validation()
        _, plan = plan_query(LARGE, made.streams.shapes(), lambda _: True)
        assert found.model_copy(update={"admission": None}) == described(plan)
        assert found.admission is not None
        alone = (await made.queries.validate(JsonBody(orjson.dumps(LARGE["plan"])))).validation()
        assert alone == found

    run(tmp_path, test)


def test_errors_of_a_large_query_have_pointers_and_suggestions(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        bad = large_plan()
        bad["nodes"]["in"]["stream"] = "raedings"
        (item,) = (await made.queries.validate({"name": "q", "plan": bad})).validation().errors
        assert item.pointer == "plan/nodes/in/stream"
        assert "did you mean 'readings'?" in item.detail
        with pytest.raises(InvalidObject) as caught:
            await made.queries.register({**LARGE, "class": "none"})
        assert [item.code for item in caught.value.items] == ["unknown_class"]
        with pytest.raises(Refused, match="not JSON"):
            await made.queries.validate(JsonBody(b"[1," * 2000))

    run(tmp_path, test)


def test_a_large_query_runs(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        info = await made.queries.register(JsonBody(orjson.dumps(LARGE)))
        assert made.queries.get(info.id).state is ActualState.RUNNING
        assert info.admission is not None
        plan = await made.queries.views.plan(info.id)
        assert plan is not None

    run(tmp_path, test)


def test_concurrent_registrations_with_one_key_give_one_query(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        first, second = await asyncio.gather(
            made.queries.register(LARGE, "key"), made.queries.register(LARGE, "key")
        )
        assert first.id == second.id
        assert len(made.queries.registry) == 1
        with pytest.raises(Conflict):
            await made.queries.register({**LARGE, "name": "other"}, "key")

    run(tmp_path, test)


def test_a_stream_that_changes_during_planning_is_noticed(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        await made.queries.validate(LARGE)  # starts the process
        registering = asyncio.create_task(made.queries.register(LARGE))
        await asyncio.sleep(0)  # the job is on its way, with the fields of the old stream
        made.streams.remove("readings")
        fields = [{"name": "at", "type": "timestamp"}, {"name": "other", "type": "int"}]
        made.streams.create(StreamSpec.model_validate({**READINGS, "fields": fields}))
        with pytest.raises(InvalidObject) as caught:
            await registering
        assert {item.code for item in caught.value.items} == {"unknown_field"}
        assert len(made.queries.registry) == 0

    run(tmp_path, test)


def test_the_event_loop_turns_while_a_large_query_is_planned(tmp_path: Path) -> None:
    """The longest time between two turns of the loop is a small part of what planning takes."""
    heavy = large_plan(columns=130, terms=60)

    async def longest_gap(until: asyncio.Task[Any]) -> float:
        longest, last = 0.0, time.perf_counter()
        while not until.done():
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        return longest

    async def test(made: Service) -> None:
        await made.queries.validate(LARGE)  # starts the process
        attempts = []
        for _ in range(3):  # other programs may hold up this one
            begin = time.perf_counter()
            described(plan_query(heavy, made.streams.shapes(), lambda _: True, alone=True)[1])
            here = time.perf_counter() - begin
            validating = asyncio.create_task(made.queries.validate(heavy))
            attempts.append(await longest_gap(validating) / here)
            assert validating.result().validation().valid
        assert min(attempts) < 0.3

    run(tmp_path, test)
