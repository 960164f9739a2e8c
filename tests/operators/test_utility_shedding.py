"""Load shedding by utility: rows of least utility are dropped first, and never more than the share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.conftest import MakeStream
from tests.support.engine.shed_streams import kept, numbers, shedder
from tests.support.plans.sample_plans import IN, SECOND, STREAMS

from mavstream_protocol.errors import InvalidObject
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.qos import QosSpec
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.schema import FieldType
from mavstream_protocol.utility import infer_utility
from mavstream_protocol.wire.resources import DesiredState
from mavstream_server.catalog.catalog import QueryRecord
from mavstream_server.columns.column import Array
from mavstream_server.operators.shedding.shedder import BLOCK
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.queries.query import Query
from mavstream_server.queries.start import start_command
from mavstream_server.testing import run_plan

BLOCKS = 12
ROWS = BLOCKS * BLOCK
CUTS = [1, 2, 700, BLOCK, BLOCK + 1, 3 * BLOCK - 1, 5 * BLOCK + 17]
RANDOM = np.random.default_rng(11)
NUMBER = np.arange(ROWS) // BLOCK

COURSES: dict[str, Array] = {
    "the same all the time": np.zeros(ROWS),
    "as before": RANDOM.normal(size=ROWS),
    "ever less": -np.arange(ROWS, dtype=np.float64),
    "ever more": np.arange(ROWS, dtype=np.float64),
    "flips": np.where(NUMBER % 2, 100.0, -100.0) + RANDOM.normal(size=ROWS),
    "few values": RANDOM.integers(0, 4, ROWS).astype(np.float64),
    "a walk": np.cumsum(RANDOM.normal(size=ROWS)),
}


@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("course", COURSES)
def test_no_block_loses_more_than_the_share_however_utility_changes(
    stream: MakeStream, course: str, share: float
) -> None:
    rows = numbers(stream, COURSES[course])
    whole = kept(shedder(share, "x"), rows)
    lost = BLOCK - np.bincount(whole // BLOCK, minlength=BLOCKS)
    assert lost.max() <= int(share * BLOCK)
    assert (whole == kept(shedder(share, "x"), rows, CUTS)).all()


@pytest.mark.parametrize("course", COURSES)
def test_the_share_is_dropped_in_the_long_run(stream: MakeStream, course: str) -> None:
    rows = numbers(stream, COURSES[course])
    lost = ROWS - len(kept(shedder(0.3, "x"), rows))
    # Every other block of "flips", and some of "walk", are unlike all blocks before.
    least = {"flips": 0.4, "a walk": 0.7}.get(course, 0.8)
    assert least * 0.3 * ROWS < lost <= 0.3 * ROWS


def test_rows_of_least_utility_are_dropped(stream: MakeStream) -> None:
    x = COURSES["as before"]
    stays = kept(shedder(0.1, "x"), numbers(stream, x))
    goes = np.setdiff1d(np.arange(BLOCK, ROWS), stays)  # nothing is known in the first block
    assert len(goes) == pytest.approx(0.1 * (ROWS - BLOCK), rel=0.05)
    assert x[goes].max() < np.quantile(x, 0.13)
    assert (x[stays[stays >= BLOCK]] > np.quantile(x, 0.07)).mean() > 0.99


def test_rows_that_fail_the_condition_are_dropped(stream: MakeStream) -> None:
    x = COURSES["as before"]
    stays = kept(shedder(0.1, "x > 0"), numbers(stream, x))
    goes = np.setdiff1d(np.arange(BLOCK, ROWS), stays)
    assert len(goes) == pytest.approx(0.1 * (ROWS - BLOCK), rel=0.1)
    assert (x[goes] <= 0).all()


def test_other_rows_are_dropped_where_too_few_fail_the_condition(stream: MakeStream) -> None:
    x = COURSES["as before"]
    stays = kept(shedder(0.5, "x > -1"), numbers(stream, x))
    assert (ROWS - len(stays)) / ROWS == pytest.approx(0.5, rel=0.05)
    assert (x[stays[stays >= BLOCK]] > -1).mean() > 0.99


@pytest.mark.parametrize("utility", ["x", "sqrt(k - 1000000)", "ln(-x)"])
def test_null_and_failed_utilities_are_the_least(stream: MakeStream, utility: str) -> None:
    if utility == "x":
        x = [None if number % 20 == 3 else -float(number % 7) for number in range(3 * BLOCK)]
        worthless = np.arange(3 * BLOCK) % 20 == 3
    elif utility == "ln(-x)":
        x = [float(number % 20 == 3) * 2 - 1 for number in range(3 * BLOCK)]
        worthless = np.arange(3 * BLOCK) % 20 == 3
    else:
        x, worthless = [0.0] * (3 * BLOCK), np.ones(3 * BLOCK, dtype=bool)
    stays = kept(shedder(0.05, utility), numbers(stream, x))
    goes = np.setdiff1d(np.arange(BLOCK, 3 * BLOCK), stays)
    assert len(goes) > 0.04 * 2 * BLOCK
    assert worthless[goes].all()


def test_a_share_that_is_switched_within_a_block_drops_no_more_of_it(stream: MakeStream) -> None:
    rows = numbers(stream, COURSES["ever less"])
    sheds, stayed = shedder(0.1, "x"), []
    for start in range(0, ROWS, 256):
        sheds.set(0.1 if start % 512 else 0.0)
        part = np.arange(start, start + 256)
        stayed.append(kept(sheds, rows, start=start, stop=start + 256) if sheds.quota else part)
    lost = BLOCK - np.bincount(np.concatenate(stayed) // BLOCK, minlength=BLOCKS)
    assert 0 < lost.max() <= int(0.1 * BLOCK)


def test_a_query_sheds_by_a_column_that_it_does_not_read(stream: MakeStream) -> None:
    x = COURSES["as before"][: 4 * BLOCK]
    rows = numbers(stream, x)
    rows.complete()
    nodes = {"in": {"op": "source", "stream": "numbers"}, "p": project("in", k="k")}
    plan = infer(Plan.parse({"root": "p", "nodes": nodes}), {"numbers": rows.shape})
    options = RunOptions(utility=infer_utility(QosSpec(worth={"numbers": "-x"}), plan))
    expected = kept(shedder(0.2, "-x"), rows).tolist()

    run = run_plan(nodes, "p", [rows], options=options, train=900)
    (source,) = run.query.network.sources
    source.shed(0.2)
    run.engine.run(9)
    saved, before = run.engine.snapshot("q"), run.answers()
    assert [k for (k,) in run.rows()] == expected
    again = run_plan(nodes, "p", [rows], options=options, train=64, policy="wrr", saved=saved)
    assert [k for (k,) in before + again.rows()] == expected
    assert "errors" not in run.query.counters["in"]


def test_the_start_command_has_the_utility_of_rows() -> None:
    plan = Plan.parse({"root": "in", "nodes": IN})
    spec = QuerySpec(name="q", plan=plan, qos=QosSpec(worth={"readings": "humidity < 50"}))
    record = QueryRecord("q", spec, DesiredState.RUNNING, None, None, 0, 1, 0)
    typed = infer(plan, STREAMS)
    command = start_command(Query(record, typed, lambda: typed.schema), None, again=False)
    assert command.options.utility == infer_utility(spec.qos, typed)
    assert command.options.utility["readings"].type is FieldType.BOOL


def project(input_: str, **compute: str) -> dict[str, Any]:
    return {"op": "project", "input": input_, "compute": compute}


SCALED = {
    **IN,
    "a": {"op": "aggregate", "input": "in", "window": SECOND, "compute": {"n": "count(*)"}, "scaled": True},
}


@pytest.mark.parametrize(
    ("nodes", "qos", "pointer", "code", "words"),
    [
        (IN, {"worth": {"reading": "home"}}, "qos/worth/reading", "unknown_stream", "mean 'readings'"),
        (IN, {"worth": {"readings": "hom"}}, "qos/worth/readings", "unknown_field", "did you mean `home`"),
        (IN, {"worth": {"readings": "room"}}, "qos/worth/readings", "type_mismatch", "and 'room' is string"),
        (IN, {"worth": {"readings": "ts"}}, "qos/worth/readings", "type_mismatch", "number or a condition"),
        (
            IN,
            {"worth": {"readings": "avg(home)"}},
            "qos/worth/readings",
            "aggregate_not_allowed",
            "cannot stand here",
        ),
        (SCALED, {"worth": {"readings": "home"}}, "qos/worth/readings", "not_scalable", "dropped at random"),
        (SCALED, {"max_loss": "100%"}, "qos/max_loss", "not_scalable", "allow less than 100%"),
    ],
)
def test_the_error_for_a_wrong_utility_has_a_pointer(
    nodes: dict[str, Any], qos: dict[str, Any], pointer: str, code: str, words: str
) -> None:
    plan = infer(Plan.parse({"root": list(nodes)[-1], "nodes": nodes}), STREAMS)
    with pytest.raises(InvalidObject) as caught:
        infer_utility(QosSpec.model_validate(qos), plan)
    (item,) = caught.value.items
    assert (item.pointer, item.code) == (pointer, code)
    assert words in item.detail
