"""Plans made with the builder equal plans written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from mavstream import Flow, InvalidPlan, Plan, Windowed, join, stream
from mavstream_protocol.plans.plan import ProjectNode, UnionNode

HOT = stream("readings").where("temperature > 30")


def nodes_of(flow: Flow) -> dict[str, Any]:
    return dict(flow.build().model_dump(mode="json", exclude_none=True, exclude_defaults=True)["nodes"])


def test_the_chain_of_the_readme() -> None:
    flow = HOT.window("1s").by("location").agg(mean="avg(temperature)")
    assert flow.build() == Plan.parse(
        {
            "root": "aggregate",
            "nodes": {
                "readings": {"op": "source", "stream": "readings"},
                "select": {"op": "select", "input": "readings", "where": "temperature > 30"},
                "aggregate": {
                    "op": "aggregate",
                    "input": "select",
                    "by": ["location"],
                    "window": {"kind": "tumbling", "size": "1s"},
                    "compute": {"mean": "avg(temperature)"},
                },
            },
        }
    )


def test_inputs_precede_the_nodes_that_read_them() -> None:
    assert list(HOT.window("1s").agg(n="count(*)").build().nodes) == ["readings", "select", "aggregate"]


def test_a_flow_is_not_changed_by_later_steps() -> None:
    before = HOT.build()
    HOT.project(t="temperature")
    HOT.window("1s").by("home").agg(n="count(*)")
    assert HOT.build() == before


def test_later_changes_of_arguments_do_not_change_the_plan() -> None:
    columns = {"t": "temperature"}
    flow = HOT.project(columns)
    columns["u"] = "humidity"
    project = flow.build().nodes["project"]
    assert isinstance(project, ProjectNode)
    assert project.compute == {"t": "temperature"}


def test_the_same_calls_give_the_same_plan() -> None:
    def build() -> Plan:
        left = stream("readings").where("a > 1").where("b > 2")
        return left.join(stream("doors").where("open"), on=["home"], within="1s").build()

    assert build() == build()
    assert list(build().nodes) == ["readings", "select", "select_2", "doors", "select_3", "join"]


def test_names_can_be_chosen() -> None:
    flow = HOT.named("hot").project(f="temperature * 1.8 + 32").named("fahrenheit")
    assert flow.build().root == "fahrenheit"
    assert list(flow.build().nodes) == ["readings", "hot", "fahrenheit"]


def test_a_chosen_name_is_not_given_to_others() -> None:
    flow = stream("select").where("a").named("join").where("b")
    assert list(flow.build().nodes) == ["select", "join", "select_2"]


def test_one_name_for_two_operators_is_refused() -> None:
    flow = stream("a").where("x").named("hot").where("y").named("hot")
    with pytest.raises(InvalidPlan, match="two different operators are named 'hot'"):
        flow.build()


@pytest.mark.parametrize(
    ("flow", "window"),
    [
        (HOT.window("10s", hop="1s"), {"kind": "hopping", "size": "10s", "hop": "1s"}),
        (HOT.window("10s").hop("1s"), {"kind": "hopping", "size": "10s", "hop": "1s"}),
        (HOT.rows_window(100), {"kind": "tumbling", "size": 100}),
        (HOT.session("30s"), {"kind": "session", "gap": "30s"}),
        (HOT.session("1m", partial=True), {"kind": "session", "gap": "1m", "partial": True}),
        (HOT.rows_window(100, hop=10), {"kind": "hopping", "size": 100, "hop": 10}),
        (HOT.window({"kind": "tumbling", "size": "1m"}), {"kind": "tumbling", "size": "1m"}),
        (
            HOT.window("1s", begin="2026-01-01T00:00:00Z", until="2026-01-02T00:00:00Z", partial=True),
            {
                "kind": "tumbling",
                "size": "1s",
                "begin": "2026-01-01T00:00:00.000000Z",
                "until": "2026-01-02T00:00:00.000000Z",
                "partial": True,
            },
        ),
    ],
)
def test_windows(flow: Windowed, window: dict[str, object]) -> None:
    node = nodes_of(flow.agg(n="count(*)"))["aggregate"]
    assert node["window"] == window


def test_a_join_with_all_its_parts() -> None:
    flow = join(
        HOT,
        stream("doors"),
        on=["home", ("room", "place")],
        within=("1s", "2s"),
        where="l.temperature > r.threshold",
        compute={"home": "l.home"},
        order="time",
    )
    assert nodes_of(flow)["join"] == {
        "op": "join",
        "left": "select",
        "right": "doors",
        "on": [["home", "home"], ["room", "place"]],
        "within": {"before": "1s", "after": "2s"},
        "where": "l.temperature > r.threshold",
        "compute": {"home": "l.home"},
        "order": "time",
    }


def test_one_key_and_one_distance_are_enough() -> None:
    node = nodes_of(HOT.join(stream("doors"), "home", within="500ms"))["join"]
    assert node["on"] == [["home", "home"]]
    assert node["within"] == {"before": "500ms", "after": "500ms"}


def test_a_join_in_a_window() -> None:
    node = nodes_of(HOT.join(stream("doors"), "home", window="1s"))["join"]
    assert node["window"] == {"kind": "tumbling", "size": "1s"}


def test_outputs_of_a_split_are_read_by_name() -> None:
    parts = stream("readings").split(hot="temperature > 30", cold="temperature < 0")
    flow = parts["hot"].union(parts["cold"], parts.otherwise, order="time")
    assert list(parts) == ["hot", "cold"]
    union = flow.build().nodes["union"]
    assert isinstance(union, UnionNode)
    assert union.inputs == ("split.hot", "split.cold", "split.else")
    assert parts["cold"].build().root == "split.cold"
    with pytest.raises(KeyError, match="it has hot, cold, else"):
        parts["warm"]


def test_except_has_two_sides_and_a_window() -> None:
    node = nodes_of(HOT.except_(stream("known"), "1m"))["except"]
    assert node == {
        "op": "except",
        "left": "select",
        "right": "known",
        "window": {"kind": "tumbling", "size": "1m"},
    }


def test_distinct_has_a_window() -> None:
    nodes = nodes_of(HOT.distinct("1m").distinct({"kind": "hopping", "size": 10, "hop": 5}))
    assert nodes["distinct"] == {
        "op": "distinct",
        "input": "select",
        "window": {"kind": "tumbling", "size": "1m"},
    }
    assert nodes["distinct_2"]["window"] == {"kind": "hopping", "size": 10, "hop": 5}


def test_equal_parts_become_one_operator() -> None:
    flow = stream("a").where("x > 1").join(stream("a").where("x > 1"), "k", within="1s")
    assert list(flow.build().nodes) == ["a", "select", "join"]


def test_a_part_that_is_used_repeatedly_is_built_once() -> None:
    flow = stream("a")
    for _ in range(40):
        flow = flow.union(flow)
    assert len(flow.build().nodes) == 41


def test_columns_may_have_names_that_python_reserves() -> None:
    assert nodes_of(HOT.compute({"from": "home", "class": "room"}))["project"]["compute"] == {
        "from": "home",
        "class": "room",
    }


def test_the_error_of_an_invalid_plan_has_a_pointer() -> None:
    with pytest.raises(InvalidPlan) as caught:
        HOT.window("soon").agg(n="count(*)").build()
    assert [item.pointer for item in caught.value.items] == ["nodes/aggregate/window/size"]
