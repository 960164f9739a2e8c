"""Invalid queries: every error has a pointer, and nothing is stored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.services.query_service import HOT, HOT_PLAN, WINDOW_PLAN, service

from mavstream_protocol import InvalidObject


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"plan": {**HOT_PLAN, "root": "cold"}}, "plan/root", "unknown_node"),
        (
            {
                "plan": {
                    **HOT_PLAN,
                    "nodes": {**HOT_PLAN["nodes"], "hot": {"op": "select", "input": "in", "where": "x"}},
                }
            },
            "plan/nodes/hot/where",
            "unknown_field",
        ),
        ({"plan": {"root": "in", "nodes": {"in": {"op": "sauce"}}}}, "plan/nodes/in/op", "unknown_operator"),
        ({"plan": 7}, "plan", "invalid_value"),
        ({"qos": {"latency": {"fast": "1s"}}}, "qos/latency", "latency_form"),
        ({"qos": {"memory": {"at_most": "much"}}}, "qos/memory/at_most", "size"),
        ({"qos": {"worth": {"readings": "room"}}}, "qos/worth/readings", "type_mismatch"),
        ({"qos": {"worth": {"doors": "1"}}}, "qos/worth/doors", "unknown_stream"),
        ({"qos": {"worth": {"readings": 7}}}, "qos/worth/readings", "invalid_value"),
        ({"class": "nobles"}, "class", "unknown_class"),
        ({"name": "9"}, "name", "name"),
        ({"mode": "sometimes"}, "mode", "invalid_value"),
        ({"mode": "one_time"}, "plan/nodes/in", "one_time_needs_window"),
        ({"colour": 1}, "colour", "unknown_key"),
        ({"name": "\ud800"}, "body", "invalid_text"),
        ({"name": None}, "name", "name"),
    ],
)
def test_each_error_has_a_pointer_and_nothing_is_stored(
    tmp_path: Path, change: dict[str, Any], pointer: str, code: str
) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False) as made:
            with pytest.raises(InvalidObject) as caught:
                await made.queries.register({**HOT, **change})
            assert [(item.pointer, item.code) for item in caught.value.items] == [(pointer, code)]
            validation = (await made.queries.validate({**HOT, **change})).validation()
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
            assert not (await made.queries.validate(data)).validation().valid

    asyncio.run(test())


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False) as made:
            bad = {"name": "7", "plan": {"root": "in", "nodes": {"in": {"op": "sauce"}}}, "mode": 5}
            pointers = {item.pointer for item in (await made.queries.validate(bad)).validation().errors}
            assert pointers == {"name", "plan/nodes/in/op", "mode"}
            worse = {**HOT, "class": "nobles", "plan": {"root": "x", "nodes": {}}}
            assert "plan/nodes" in {
                item.pointer for item in (await made.queries.validate(worse)).validation().errors
            }

    asyncio.run(test())


def test_a_valid_plan_is_answered_with_schemas_and_paths(tmp_path: Path) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False) as made:
            for body in (WINDOW_PLAN, {"name": "means", "plan": WINDOW_PLAN}):
                found = (await made.queries.validate(body)).validation()
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
