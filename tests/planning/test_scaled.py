"""Scaled aggregates: right on average, within their bounds, exact while nothing is shed."""

from __future__ import annotations

import json
import re
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.conftest import MakeStream
from tests.support.differential.comparison import difference
from tests.support.differential.engine_runs import Variant, run_case
from tests.support.differential.families.scaled import scaled_cases
from tests.support.differential.oracle import Oracle, Unanswerable
from tests.support.plans.sample_plans import DOORS, IN, SECOND, STREAMS, problems

from mavstream import stream as flow_of
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import AggregateNode, Plan
from mavstream_protocol.qos import QosSpec
from mavstream_protocol.utility import infer_utility
from mavstream_server.columns.column import Array
from mavstream_server.planning.rewriting import PlanMetrics, alternates
from mavstream_server.planning.weighting import weighted
from mavstream_server.queries.planning.validation import plan_query
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

NUMBERS = {"in": {"op": "source", "stream": "numbers"}}
OTHERS = {"others": {"op": "source", "stream": "others"}}
COMPUTE = {"n": "count(*)", "known": "count(x)", "total": "sum(x)", "whole": "sum(k)", "mean": "avg(x)"}
WINDOW = {"kind": "tumbling", "size": "500ms"}
ROWS = 60_000


def aggregate(input_: str, **changes: Any) -> dict[str, Any]:
    node = {"op": "aggregate", "input": input_, "by": ["g"], "window": WINDOW, "compute": COMPUTE}
    return {"a": {**node, "scaled": True, **changes}}


PLANS: dict[str, dict[str, Any]] = {
    "source": {**NUMBERS, **aggregate("in")},
    "hopping": {**NUMBERS, **aggregate("in", window={"kind": "hopping", "size": "500ms", "hop": "200ms"})},
    "select and project": {
        **NUMBERS,
        "few": {"op": "select", "input": "in", "where": "x > -0.5 OR x IS NULL"},
        "p": {"op": "project", "input": "few", "compute": {"g": "g", "x": "10 * x", "k": "k % 10"}},
        **aggregate("p"),
    },
    "union of streams": {
        **NUMBERS,
        **OTHERS,
        "u": {"op": "union", "inputs": ["in", "others"]},
        **aggregate("u"),
    },
    "ordered union of parts": {
        **NUMBERS,
        "s": {"op": "split", "input": "in", "outputs": {"low": "x < -1", "high": "x > 0"}},
        "low": {"op": "select", "input": "s.low", "where": "k % 3 > 0"},
        "u": {"op": "union", "inputs": ["low", "s.high"], "order": "time"},
        **aggregate("u"),
    },
    "beside an except": {
        **NUMBERS,
        "few": {"op": "select", "input": "in", "where": "x > 2.5"},
        "e": {"op": "except", "left": "in", "right": "few", "window": WINDOW},
        "p": {"op": "project", "input": "e", "compute": {"g": "g", "start": "window_start"}},
        **aggregate("in"),
        "q": {"op": "project", "input": "a", "compute": {"g": "g", "start": "window_start"}},
        "both": {"op": "union", "inputs": ["p", "q"]},
    },
}


def fill(stream: MakeStream, name: str, seed: int, rows: int = ROWS, frame: int = ROWS) -> ScriptedStream:
    """Write rows a millisecond apart: numbers with a few nulls, in four groups of unlike sizes."""
    made = stream(name, "ts timestamp, g int, x float null, k int", event_time="ts")
    random = np.random.default_rng(seed)
    x: list[float | None] = random.normal(1.0, 2.0, rows).tolist()
    for index in random.integers(0, rows, rows // 50).tolist():
        x[index] = None
    columns = {
        "ts": range(0, 1000 * rows, 1000),
        "g": random.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1]).tolist(),
        "x": x,
        "k": random.integers(0, 1000, rows).tolist(),
    }
    for start in range(0, rows, frame):
        made.columns({column: values[start : start + frame] for column, values in columns.items()})
    made.complete()
    return made


@pytest.fixture
def both(stream: MakeStream) -> list[ScriptedStream]:
    return [fill(stream, "numbers", 1), fill(stream, "others", 2)]


def started(name: str, streams: list[ScriptedStream], share: float, **options: Any) -> PlanRun:
    nodes = PLANS[name]
    used = {node["stream"] for node in nodes.values() if node["op"] == "source"}
    run = run_plan(nodes, list(nodes)[-1], [each for each in streams if each.name in used], **options)
    shed(run, share)
    return run


def shed(run: PlanRun, share: float) -> None:
    for source in run.query.network.sources:
        source.shed(share)


def columns(run: PlanRun) -> dict[str, Array]:
    """Return the answers by column, ordered by window and group."""
    rows = run.rows()
    found = dict(zip(run.schema.names, np.array(rows, dtype=np.float64).T, strict=True))
    order = np.lexsort((found["g"], found["window_start"]))
    return {column: values[order] for column, values in found.items()}


@pytest.mark.parametrize("name", [name for name in PLANS if name != "beside an except"])
def test_without_shedding_values_are_exact_and_errors_zero(stream: MakeStream, name: str) -> None:
    both = [fill(stream, "numbers", 1, 10_000), fill(stream, "others", 2, 10_000)]
    scaled = columns(started(name, both, 0.0))
    plain = {**PLANS[name], **aggregate(PLANS[name]["a"]["input"], window=PLANS[name]["a"]["window"])}
    plain["a"] = {**plain["a"], "scaled": False}
    exact = columns(run_plan(plain, "a", both))
    assert len(exact["n"]) >= 80
    for column in exact:
        # Two streams are summed in any order.
        assert scaled[column] == pytest.approx(exact[column], rel=1e-12, abs=0)
    for column in COMPUTE:
        assert not scaled[f"{column}_error"].any()


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("name", ["source", "select and project", "union of streams"])
def test_true_values_lie_within_the_bounds_in_95_of_100_windows(
    both: list[ScriptedStream], name: str, share: float
) -> None:
    assert_covered(columns(started(name, both, 0.0)), columns(started(name, both, share)))


def test_bounds_hold_while_the_share_changes_within_windows(both: list[ScriptedStream]) -> None:
    exact, random = columns(started("source", both, 0.0)), Random(4)
    run = started("source", both, 0.0, train=90)
    while run.engine.step():
        shed(run, random.choice([0.0, 0.1, 0.4, 0.7]))
    assert run.query.counters["in"]["shed"] > 0.2 * ROWS
    assert_covered(exact, columns(run))


def assert_covered(exact: dict[str, Array], scaled: dict[str, Array]) -> None:
    """Assert that bounds hold about as often as they say, and that values are right on average."""
    assert (exact["g"] == scaled["g"]).all()
    for column in COMPUTE:
        distance, bound = scaled[column] - exact[column], scaled[f"{column}_error"]
        bounded = np.isfinite(bound) & (bound > 0)
        distance, bound = distance[bounded], bound[bounded]
        assert len(distance) > 400
        covered = (np.abs(distance) <= bound).mean()
        assert 0.92 <= covered <= 0.99, column
        if column != "mean":  # a ratio of two sums is right in the limit only
            assert abs(distance.sum()) <= 4 * np.sqrt(((bound / 1.96) ** 2).sum()), column


def test_the_bound_of_a_mean_far_from_zero_is_not_inflated(stream: MakeStream) -> None:
    rows = 20_000
    made = stream("numbers", "ts timestamp, g int, x float null, k int", event_time="ts")
    x = np.random.default_rng(8).normal(1_000_000.0, 1.0, rows)
    blank = [0] * rows
    made.columns({"ts": range(0, 1000 * rows, 1000), "g": blank, "x": x.tolist(), "k": blank})
    made.complete()
    scaled = columns(started("source", [made], 0.5))
    kept = scaled["n"] / 2
    assert scaled["mean_error"] == pytest.approx(1.96 * np.sqrt(0.5 / kept), rel=0.25)
    exact = x.reshape(-1, 500).mean(axis=1)
    assert (np.abs(scaled["mean"] - exact) <= scaled["mean_error"]).mean() > 0.9


@pytest.mark.parametrize("name", PLANS)
def test_shed_rows_and_scaled_values_do_not_depend_on_frames_policies_trains_or_restores(
    stream: MakeStream, tmp_path: Path, clock: ManualClock, name: str
) -> None:
    streams = [fill(stream, "numbers", 3, 5000), fill(stream, "others", 4, 5000)]
    expected = started(name, streams, 0.3).rows()
    assert expected
    cut = partial(ScriptedStream, tmp_path / "cut", clock=clock)
    others = [fill(cut, "numbers", 3, 5000, 611), fill(cut, "others", 4, 5000, 87)]
    assert difference(expected, started(name, others, 0.3).rows()) == ([], [])
    for other in others:
        other.close()
    random = Random(name)
    for train, policy in ((100, "wrr"), (700, "chain")):
        run = started(name, streams, 0.3, train=train, policy=policy)
        run.engine.run(random.randrange(40))
        if run.query.active:
            saved, before = run.engine.snapshot("q"), run.answers()
            again = run_plan(
                PLANS[name], list(PLANS[name])[-1], streams, train=random.choice((130, 4096)), saved=saved
            )
            assert difference(expected, before + again.rows()) == ([], [])
        assert difference(expected, run.rows()) == ([], [])


def test_answers_without_shedding_are_those_of_duckdb() -> None:
    oracle, compared = Oracle(), 0
    for case in islice(scaled_cases(5), 6):
        try:
            expected = oracle.answer(case)
        except Unanswerable:
            continue
        compared += bool(expected)
        assert difference(expected, run_case(case, Variant(train=64))) == ([], []), case.description()
    assert compared >= 3


def test_alternates_keep_the_scaling_and_give_the_same_answer(stream: MakeStream) -> None:
    nodes = {
        **NUMBERS,
        **OTHERS,
        "u": {"op": "union", "inputs": ["in", "others"]},
        "p": {"op": "project", "input": "u", "compute": {"g": "g", "x": "x * 2", "k": "k", "z": "x"}},
        "few": {"op": "select", "input": "p", "where": "x > 0 AND k < 900"},
        **aggregate("few"),
        "q": {"op": "project", "input": "a", "compute": {"g": "g", "wide": "n_error", "mean": "mean"}},
    }
    streams = [fill(stream, "numbers", 3, 5000), fill(stream, "others", 4, 5000)]
    plan = Plan.parse({"root": "q", "nodes": nodes})
    found = alternates(plan, {each.name: each.shape for each in streams}, PlanMetrics())
    run = run_plan(nodes, "q", streams)
    shed(run, 0.3)
    expected = run.rows()
    assert len(found) > 2
    for alternate in found:
        dumped = alternate.plan.model_dump(mode="json", exclude_defaults=True)
        assert dumped["nodes"]["a"]["scaled"]
        run = run_plan(dumped["nodes"], dumped["root"], streams)
        shed(run, 0.3)
        assert difference(expected, run.rows()) == ([], []), dumped


def test_types_of_scaled_columns() -> None:
    compute = {"n": "count(*)", "known": "count(room)", "total": "sum(temperature)", "mean": "avg(humidity)"}
    node = {"op": "aggregate", "input": "in", "window": SECOND, "compute": compute, "scaled": True}
    schema = infer(Plan.parse({"root": "a", "nodes": {**IN, "a": node}}), STREAMS).schema
    assert [(f.name, str(f.type), f.nullable) for f in schema][:-2] == [
        ("n", "float", False),
        ("n_error", "float", False),
        ("known", "float", False),
        ("known_error", "float", False),
        ("total", "float", True),
        ("total_error", "float", True),
        ("mean", "float", True),
        ("mean_error", "float", True),
    ]


def test_the_builder_makes_scaled_aggregates() -> None:
    plan = flow_of("numbers").window("1s").by("g").scaled().agg(n="count(*)").build()
    aggregate = plan.nodes["aggregate"]
    assert isinstance(aggregate, AggregateNode)
    assert aggregate.scaled
    plan = flow_of("numbers").window("1s").agg(n="count(*)").build()
    assert "scaled" not in plan.model_dump(mode="json", exclude_defaults=True)["nodes"]["aggregate"]


def scaled(input_: str = "in", **changes: Any) -> dict[str, Any]:
    node = {"op": "aggregate", "input": input_, "window": SECOND, "compute": {"n": "count(*)"}}
    return {"a": {**node, "scaled": True, **changes}}


JOIN = {"op": "join", "left": "in", "right": "doors", "on": [["home", "home"]], "within": "1s"}
JOINED = {**IN, **DOORS, "j": {**JOIN, "compute": {"home": "l.home"}}}
PARTS = {
    **IN,
    "warm": {"op": "select", "input": "in", "where": "temperature > 20"},
    "damp": {"op": "select", "input": "in", "where": "humidity > 20"},
}


@pytest.mark.parametrize(
    ("nodes", "pointer", "code", "words"),
    [
        ({**IN, **scaled(compute={"n": "max(home)"})}, "compute/n", "not_scalable", "sum(x) or avg(x) alone"),
        ({**IN, **scaled(compute={"n": "count(distinct home)"})}, "compute/n", "not_scalable", "distinct"),
        ({**IN, **scaled(compute={"n": "sum(home) / 2"})}, "compute/n", "not_scalable", "project above"),
        ({**IN, **scaled(by=["home"], compute={"n": "home"})}, "compute/n", "not_scalable", "alone"),
        ({**IN, **scaled(window={"kind": "tumbling", "size": 9})}, "scaled", "not_scalable", "by time"),
        (
            {**IN, **scaled(compute={"n": "count(*)", "n_error": "avg(home)"})},
            "compute/n",
            "duplicate_column",
            "'n_error', which there is already",
        ),
        ({**IN, **scaled(compute={"n" * 60: "count(*)"})}, f"compute/{'n' * 60}", "invalid_name", "than 64"),
        ({**JOINED, **scaled("j")}, "scaled", "not_scalable", "'j' below makes new ones"),
        (
            {**IN, "b": {**scaled()["a"], "scaled": False}, **scaled("b")},
            "scaled",
            "not_scalable",
            "'b' below makes new ones",
        ),
        (
            {**PARTS, "u": {"op": "union", "inputs": ["warm", "damp"]}, **scaled("u")},
            "scaled",
            "not_scalable",
            "'u' below may give a row of stream 'readings' twice",
        ),
        (
            {
                **IN,
                "again": {"op": "source", "stream": "readings"},
                "u": {"op": "union", "inputs": ["in", "again"]},
                **scaled("u"),
            },
            "scaled",
            "not_scalable",
            "twice",
        ),
    ],
)
def test_aggregates_that_cannot_be_scaled_are_refused_with_a_pointer(
    nodes: dict[str, Any], pointer: str, code: str, words: str
) -> None:
    (item,) = problems(nodes, "a")
    assert (item.pointer, item.code) == (f"nodes/a/{pointer}", code)
    assert words in item.detail


def test_the_query_of_the_page_on_shedding_is_valid() -> None:
    page = (Path(__file__).parents[2] / "docs" / "shedding.md").read_text()
    (query,) = re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    _, plan = plan_query(json.loads(query), STREAMS, lambda _: True)
    assert plan.nodes["sums"].schema.names[1:5] == ("n", "n_error", "mean", "mean_error")
    (qos,) = re.findall(r'^    "qos": (.*)$', page, re.MULTILINE)
    both = stream_plan("readings", "doors")
    assert set(infer_utility(QosSpec.model_validate_json(qos), infer(both, STREAMS))) == {
        "readings",
        "doors",
    }


def stream_plan(*names: str) -> Plan:
    home = {"home": "home"}
    nodes: dict[str, Any] = {name: {"op": "source", "stream": name} for name in names}
    nodes |= {f"p_{name}": {"op": "project", "input": name, "compute": home} for name in names}
    nodes["u"] = {"op": "union", "inputs": [f"p_{name}" for name in names]}
    return Plan.parse({"root": "u", "nodes": nodes})


def test_a_plan_is_weighted_once() -> None:
    plan = infer(Plan.parse({"root": "a", "nodes": {**IN, **scaled()}}), STREAMS)
    as_run = weighted(plan)
    assert as_run.schema == plan.schema
    assert as_run.nodes["in"].schema.names == (*plan.nodes["in"].schema.names, "#weight")
    assert weighted(as_run) is as_run
