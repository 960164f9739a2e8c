"""Workload files: the shipped ones match the papers, and errors are explained."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mavstream_server.scheduling.registry import check_options
from mavstream_server.simulation.entry import build_scenario
from mavstream_server.simulation.scenario import Scenario
from mavstream_server.simulation.workload.arithmetic import ArithmeticFault, evaluate
from mavstream_server.simulation.workload.demand import mean_rate, utilisation
from mavstream_server.simulation.workload.errors import InvalidWorkload, UnknownWorkload
from mavstream_server.simulation.workload.expansion import expand
from mavstream_server.simulation.workload.loading import load, names, parse, to_yaml

EVERY = [*(name for name in names() if not name.endswith("_n")), "5G_2", "5G_16", "5S_2", "5S_16", "5O_8"]

SMALL = """
seconds: 1
classes: {c: {priority: 1}}
streams: {"*": {rate: 100}}
queries:
  - {id: q, class: c, operators: {o: {kind: select, input: s, cost_us: 5, selectivity: 0.5}}}
"""


def per_class(scenario: Scenario) -> list[int]:
    counts = Counter(query.class_name for query in scenario.queries)
    return [counts[name] for name in sorted(scenario.priorities, key=lambda one: -scenario.priorities[one])]


def kinds(scenario: Scenario) -> dict[str, int]:
    return dict(Counter(query.operators[0].kind for query in scenario.queries))


# Shipped workloads


@pytest.mark.parametrize("name", EVERY)
def test_a_shipped_workload_is_documented_and_consistent(name: str) -> None:
    workload = load(name)
    scenario = expand(workload)
    assert workload.name == name
    assert len(workload.about) > 20
    read = {one for query in scenario.queries for part in query.operators for one in part.inputs}
    assert {stream.name for stream in scenario.streams} <= read
    assert scenario.seconds is not None or all(one.tuples or one.offsets for one in scenario.streams)
    for policy, options in workload.policies.items():
        check_options(policy, options)


@pytest.mark.parametrize(
    ("name", "queries", "priorities", "streams", "rate"),
    [
        ("A", [7, 7, 7], [6, 3, 1], 27, 1500),
        ("B", [2, 8, 11], [3, 2, 1], 27, 1500),
        ("C", [2, 8, 11], [6, 3, 1], 27, 1500),
        ("D", [7, 7, 7], [30, 20, 10], 27, 1600),
        ("E", [2, 8, 11], [60, 30, 10], 27, 1500),
        ("F", [11, 8, 2], [60, 30, 10], 27, 1500),
        ("5G", [3, 5, 7, 6, 4], [50, 40, 30, 20, 10], 32, 1200),
        ("3D_6", [21, 21, 21], [60, 30, 10], 27, 3600),
        ("3E_6", [14, 21, 28], [30, 20, 10], 27, 3600),
        ("3F_6", [28, 21, 14], [30, 20, 10], 27, 3600),
        ("5I", [12, 12, 15, 12, 12], [50, 40, 30, 20, 10], 45, 3600),
        ("5G_4", [12, 20, 28, 24, 16], [50, 40, 30, 20, 10], 32, 1200),
        ("5G_2", [12, 20, 28, 24, 16], [50, 40, 30, 20, 10], 32, 600),
        ("5S_2", [6, 10, 14, 12, 8], [50, 40, 30, 20, 10], 32, 1200),
        ("5S_3", [9, 15, 21, 18, 12], [50, 40, 30, 20, 10], 32, 1200),
        ("5O_16", [48, 80, 112, 96, 64], [50, 40, 30, 20, 10], 32, 600),
        ("5L", [20, 32, 38, 38, 32], [80, 30, 30, 10, 10], 45, 1200),
    ],
)
def test_tables_of_the_papers(
    name: str, queries: list[int], priorities: list[int], streams: int, rate: float
) -> None:
    scenario = expand(load(name))
    assert per_class(scenario) == queries
    assert sorted(scenario.priorities.values(), reverse=True) == priorities
    assert len(scenario.streams) == streams
    assert {mean_rate(stream) for stream in scenario.streams} == {rate}
    if "_" in name and scenario.cores > 1:
        assert scenario.cores == int(name.split("_")[1])


def test_the_cqc_workloads_have_nine_aggregates_six_joins_and_six_selections() -> None:
    for name in "ABCDEF":
        assert kinds(expand(load(name))) == {"aggregate": 9, "join": 6, "select": 6}


def test_the_classes_of_workload_a_are_identical() -> None:
    queries = {query.id: query.operators for query in expand(load("A")).queries}
    for id_, operators in queries.items():
        _, _, rest = id_.partition(".")
        alike = [queries[f"{name}.{rest}"] for name in "HCN"]
        assert all(
            [(part.cost, part.selectivity) for part in one]
            == [(part.cost, part.selectivity) for part in operators]
            for one in alike
        )
    passed = [query.operators[0].selectivity for query in expand(load("A")).queries]
    assert all(0.25 <= one <= 1 for one in passed)
    assert len(set(passed)) > 3


def test_class_h_alone_has_the_same_cost_as_among_the_others() -> None:
    alone, among = expand(load("B_H")), expand(load("B"))
    assert alone.queries == tuple(query for query in among.queries if query.class_name == "H")
    assert len(alone.streams) == 4
    assert alone.priorities == {"H": 3}


def test_replicas_read_the_same_streams() -> None:
    scenario = expand(load("5S_4"))
    first, second = (query for query in scenario.queries if query.id in ("class1.join0.0", "class1.join0.1"))
    assert first.operators[0].inputs == second.operators[0].inputs
    assert first.operators[0].selectivity == second.operators[0].selectivity


def test_trees_of_the_prb_paper() -> None:
    flat = expand(load("prb_cost_skew", {"skew": 0.9, "utilisation": 0.8}))
    (query,) = flat.queries
    costs = [part.cost / 1000 for part in query.operators]
    assert len(costs) == 51
    assert costs[-1] == 1
    assert all(cost == int(cost) and 1 <= cost <= 100 for cost in costs)
    even = expand(load("prb_cost_skew", {"skew": 0}))
    assert sum(costs) < sum(part.cost / 1000 for part in even.queries[0].operators)
    # The rate of a stream is the utilisation over the sum of what one tuple costs on every path.
    assert flat.streams[0].rate == pytest.approx(0.8 / (sum(cost + 1 for cost in costs[:-1]) * 1e-6))
    deep = expand(load("prb_expensive", {"depth": 4, "cost": 300}))
    dear = [part for part in deep.queries[0].operators if part.cost == 300_000]
    assert [part.name for part in dear] == ["o4_0"]
    assert len(deep.streams) == 64
    assert len(deep.queries[0].operators) == 127


def test_utilisation_scales_the_work_on_tuples() -> None:
    assert utilisation(expand(load("A"))) == pytest.approx(0.975)
    scenario = build_scenario(load("5I"), utilisation=0.5)
    assert utilisation(scenario) == pytest.approx(0.5)
    assert scenario.sources.cost == 3500, "sources have a core of their own, which is not scaled"
    assert utilisation(build_scenario(load("A"), utilisation=0.5)) == pytest.approx(0.5)


# Errors


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "cost_us: 5",
            "cost_us: cheap",
            "small: queries/0/operators/o/cost_us: 'cost_us': expected a number, {from, to}",
        ),
        (
            "cost_us: 5",
            "cost_us: -5",
            "queries/0/operators/o/cost_us: 'cost_us' must be greater than or equal to 0, got -5",
        ),
        ("cost_us: 5", "price: 5", "queries/0/operators/o/price: 'price' is not known here: leave it out"),
        ("class: c,", "class: d,", "queries/0/class: unknown class 'd'; known are: c"),
        ("input: s,", "", "queries/0/operators/o: an operator needs either input or inputs"),
        ('"*":', "other:", "streams: stream 's' is read by a query but not defined"),
        ("seconds: 1", "seconds: null", "seconds: stream 's' never ends: set its `tuples`"),
        (
            "rate: 100",
            "arrivals: recorded",
            "streams/*: recorded arrivals need offsets_s, in ascending order",
        ),
        ("rate: 100", "arrivals: bursty, rate: 1", "streams/*: burst is required for bursty arrivals"),
        ("rate: 100", "rate: =100 * n", "streams/*/rate: unknown parameter 'n'; known are: none"),
        ("rate: 100", "rate: =2 ** 3", "streams/*/rate: '2 ** 3' is not arithmetic"),
        ("seconds: 1", "seconds: 1\nextends: nothing", "extends: expected one of"),
        ("seconds: 1", "seconds: [", "expected YAML"),
        ("id: q, ", "id: q, shape: x, ", "queries/0: a query needs exactly one of shape, operators and tree"),
        (
            "seconds: 1",
            "seconds: 1\nchanges: [{at: 1, operator: join, selectivity: 1}]",
            "changes/0/operator: no operator matches 'join'",
        ),
        ("seconds: 1", "seconds: 1\nchanges: [{at: 1}]", "changes/0: a change needs a priority, a rate"),
    ],
)
def test_errors_are_reported_with_their_position(old: str, new: str, complaint: str) -> None:
    assert old in SMALL
    with pytest.raises(InvalidWorkload) as caught:
        expand(parse("small", SMALL.replace(old, new)))
    assert complaint in str(caught.value)
    assert str(caught.value).startswith("small")


def test_operators_are_listed_bottom_up_with_one_root() -> None:
    upside_down = SMALL.replace("{o: {", "{p: {kind: select, input: o}, o: {")
    with pytest.raises(InvalidWorkload, match="queries/0/operators/p: reads 'o', which must come before it"):
        expand(parse("small", upside_down))
    apart = SMALL.replace("{o: {", "{p: {kind: select, input: s}, o: {")
    with pytest.raises(InvalidWorkload, match=r"one operator that no other reads, got 2: \['p', 'o'\]"):
        expand(parse("small", apart))


def test_errors_for_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UnknownWorkload, match=r"unknown workload 'G7'.*3D_6, 3E_6.*prb_selectivity_skew"):
        load("G7")
    with pytest.raises(
        InvalidWorkload, match="5G_20: parameters/n: expected at least 2 and at most 16, got 20"
    ):
        load("5G_20")
    with pytest.raises(
        InvalidWorkload, match="parameters: unknown parameters: speed; known are: rate, rate_1"
    ):
        load("5G_4", {"speed": 3})


# User files


def test_a_file_is_read_with_parameters_and_overrides(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL.replace("rate: 100", "rate: =base * 2") + "parameters: {base: 10}\n")
    assert expand(load(file)).streams[0].rate == 20
    assert expand(load(str(file), {"base": 50})).streams[0].rate == 100
    changed = load(file, overrides={"seconds": 9, "streams": {"s": {"rate": 7}}})
    assert expand(changed).streams[0].rate == 7
    assert changed.seconds == 9


def test_a_written_workload_reads_back_the_same() -> None:
    for name in ("A", "5L", "5O_4", "mavstream", "prb_expensive", "amos_2"):
        workload = load(name)
        again = parse(name, to_yaml(workload))
        assert expand(again) == expand(workload)


def test_families_draw_their_values() -> None:
    text = SMALL.replace("selectivity: 0.5", "selectivity: {from: 0.2, to: 0.4}").replace(
        "id: q, ", "id: q, count: 50, streams: 5, "
    )
    scenario = expand(parse("small", text))
    passed = [query.operators[0].selectivity for query in scenario.queries]
    assert len(set(passed)) == 50
    assert 0.2 <= min(passed) < 0.22
    assert 0.38 < max(passed) <= 0.4
    assert len(scenario.streams) == 5
    assert passed == [query.operators[0].selectivity for query in expand(parse("small", text)).queries]
    other = [query.operators[0].selectivity for query in expand(parse("small", text + "seed: 1\n")).queries]
    assert passed != other
    turns = expand(parse("small", text.replace("{from: 0.2, to: 0.4}", "{choose: [0.1, 0.9]}")))
    assert [query.operators[0].selectivity for query in turns.queries[:4]] == [0.1, 0.9, 0.1, 0.9]


def test_changes_of_rates_and_selectivities_are_resolved_by_name() -> None:
    scenario = expand(load("5L"))
    streams = {stream.name: stream for stream in scenario.streams}
    spikes = [(3.0, 2000), (3.5, 1200), (7.0, 2000), (7.5, 1200)]
    assert list(streams["class5.select0.in"].rates) == spikes
    assert list(streams["class3.select0.in"].rates) == []
    at_two = next(change for change in scenario.changes if change.at == 2_000_000_000)
    assert {query.split(".")[0] for query, _ in at_two.selectivities} == {"class2"}
    assert [dict(change.priorities) for change in scenario.changes if change.priorities] == [
        {"class2": 50},
        {"class4": 20},
        {"class1": 50},
        {"class4": 15},
    ]


@pytest.mark.parametrize(
    ("formula", "value"), [("2 + 3 * n", 14), ("(2 + 3) * -n", -20), ("n / 8", 0.5), ("7 // 2", 3)]
)
def test_arithmetic(formula: str, value: float) -> None:
    assert evaluate(formula, {"n": 4}) == value


@pytest.mark.parametrize("formula", ["__import__('os')", "n.real", "1 / 0", "[1]", "n if n else 1", "1 +"])
def test_arithmetic_accepts_no_other_python(formula: str) -> None:
    with pytest.raises(ArithmeticFault):
        evaluate(formula, {"n": 4})
