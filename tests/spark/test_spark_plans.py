"""Plans on Spark give the rows that the engine gives: queries of the demo, others and random ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.differential.cases import Case, random_case
from tests.support.differential.hidden import hidden_columns
from tests.support.differential.oracle import Oracle, Unanswerable
from tests.support.differential.scripts import StreamScript
from tests.support.spark.answers import (
    Row,
    assert_same_rows,
    engine_rows,
    logged_streams,
    plan_of,
    spark_rows,
)

from mavstream_feeder.demo.queries import CLASSES
from mavstream_protocol import InvalidPlan, Plan
from mavstream_protocol.schema import FieldType
from mavstream_server.testing import ScriptedStream
from mavstream_spark.datasets.reader import Dataset
from mavstream_spark.errors import UnsupportedPlan
from mavstream_spark.expected.answers import answer
from mavstream_spark.plans.compiler import compile_plan
from mavstream_spark.plans.windows import POSITION, TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest_plugins = ("tests.support.spark.fixtures",)
pytestmark = pytest.mark.xdist_group("spark")

DEMO = {name: flow for each in CLASSES for name, flow in each.queries.items()}
RANDOM_CASES = 8
SOURCES: Mapping[str, Mapping[str, Any]] = {
    name: {"op": "source", "stream": name} for name in ("motion", "doors", "light", "temperature", "power")
}
WINDOW = {"kind": "tumbling", "size": "1m"}
OTHERS: dict[str, Plan] = {
    # Files have all rows: plain values, and errors of zero, or null beside null.
    "scaled": plan_of(
        "sums",
        power=SOURCES["power"],
        sums={
            "op": "aggregate",
            "input": "power",
            "by": ["home"],
            "window": WINDOW,
            "scaled": True,
            "compute": {
                "n": "count(*)",
                "whole": "sum(home)",
                "none": "sum(nullif(home, home))",
                "mean": "avg(home)",
            },
        },
    ),
    # Order within files and across them: rows of a window, the first and the last of each.
    "by rows": plan_of(
        "ends",
        motion=SOURCES["motion"],
        ends={
            "op": "aggregate",
            "input": "motion",
            "window": {"kind": "hopping", "size": 100, "hop": 40, "begin": 7},
            "compute": {
                "first": "first(room)",
                "last": "last(level)",
                "n": "count(*)",
                "rooms": "count(distinct room)",
            },
        },
    ),
    "first and last": plan_of(
        "ends",
        temperature=SOURCES["temperature"],
        light=SOURCES["light"],
        warm={
            "op": "project",
            "input": "temperature",
            "compute": {"home": "home", "x": "celsius", "at": "at"},
        },
        bright={"op": "project", "input": "light", "compute": {"home": "home", "x": "lux / 0", "at": "at"}},
        both={"op": "union", "inputs": ["warm", "bright"], "order": "time"},
        ends={
            "op": "aggregate",
            "input": "both",
            "by": ["home"],
            "window": {"kind": "hopping", "size": "2m", "hop": "30s"},
            "compute": {
                "first": "first(x)",
                "at": "last(at)",
                "mean": "avg(x)",
                "missing": "count(*) - count(x)",
            },
        },
    ),
    "split and except": plan_of(
        "quiet",
        motion=SOURCES["motion"],
        kinds={"op": "split", "input": "motion", "outputs": {"strong": "level > 0.6", "weak": "level > 0.3"}},
        here={"op": "project", "input": "kinds.weak", "compute": {"home": "home", "room": "room"}},
        busy={"op": "project", "input": "kinds.strong", "compute": {"home": "home", "room": "room"}},
        quiet={
            "op": "except",
            "left": "here",
            "right": "busy",
            "window": {"kind": "tumbling", "size": "20s"},
        },
    ),
    "distinct": plan_of(
        "seen",
        motion=SOURCES["motion"],
        where={"op": "project", "input": "motion", "compute": {"home": "home", "room": "room"}},
        rooms={
            "op": "distinct",
            "input": "where",
            "window": {"kind": "hopping", "size": "40s", "hop": "10s"},
        },
        again={"op": "project", "input": "rooms", "compute": {"home": "home", "room": "room"}},
        seen={"op": "distinct", "input": "again", "window": {"kind": "tumbling", "size": 7}},
    ),
    "window of windows": plan_of(
        "whole",
        power=SOURCES["power"],
        minutes={
            "op": "aggregate",
            "input": "power",
            "by": ["home", "device"],
            "window": WINDOW,
            "compute": {"watts": "avg(watts)", "most": "max(watts)", "n": "count(watts)"},
        },
        named={
            "op": "project",
            "input": "minutes",
            "compute": {
                "home": "home",
                "what": "upper(device) || '-' || CAST(n AS string)",
                "kwh": "watts / 1000",
            },
        },
        whole={
            "op": "aggregate",
            "input": "named",
            "by": ["home"],
            "window": {"kind": "tumbling", "size": "3m"},
            "compute": {"kwh": "sum(kwh)", "last": "max(what)", "spread": "stddev(kwh)"},
        },
    ),
    "windows joined": plan_of(
        "pairs",
        doors=SOURCES["doors"],
        motion=SOURCES["motion"],
        pairs={
            "op": "join",
            "left": "doors",
            "right": "motion",
            "on": [["home", "home"]],
            "within": {"before": "2s", "after": "5s"},
            "where": "l.open AND coalesce(r.level, 0.0) > 0.4",
            "compute": {"door": "l.door", "room": "r.room", "wait": "epoch(r.at) - epoch(l.at)"},
        },
    ),
}


@pytest.fixture(scope="module")
def streams(rush: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ScriptedStream]]:
    made = logged_streams(rush, tmp_path_factory.mktemp("logs"))
    yield made
    for stream in made:
        stream.close()


@pytest.fixture(scope="module")
def dataset(spark: SparkSession, rush: Path) -> Dataset:
    return Dataset(spark, str(rush))


_DEMO_ANSWERS: dict[str, list[Row]] = {}


def demo_answer(dataset: Dataset, name: str) -> list[Row]:
    """Return Spark's answer, computed once for several tests."""
    if name not in _DEMO_ANSWERS:
        schema, frame = answer(dataset, DEMO[name].build())
        assert tuple(frame.columns) == schema.names
        _DEMO_ANSWERS[name] = spark_rows(frame)
    return _DEMO_ANSWERS[name]


@pytest.mark.parametrize("name", DEMO)
def test_the_demo_queries_are_answered_as_the_engine_does(
    name: str, dataset: Dataset, streams: list[ScriptedStream]
) -> None:
    expected = engine_rows(streams, DEMO[name].build())
    assert_same_rows(expected, demo_answer(dataset, name))
    # Queries without answers would compare nothing; there is no frost on this day.
    assert expected or name == "frost"


@pytest.mark.parametrize("name", OTHERS)
def test_other_queries_are_answered_as_the_engine_does(
    name: str, dataset: Dataset, streams: list[ScriptedStream]
) -> None:
    expected = engine_rows(streams, OTHERS[name])
    assert expected
    assert_same_rows(expected, spark_rows(answer(dataset, OTHERS[name])[1]))


SPARK_TYPES = {
    FieldType.INT: pa.int64(),
    FieldType.FLOAT: pa.float64(),
    FieldType.BOOL: pa.bool_(),
    FieldType.STRING: pa.string(),
    FieldType.TIMESTAMP: pa.timestamp("us", "UTC"),
}


def frame_of(spark: SparkSession, script: StreamScript) -> DataFrame:
    hidden = hidden_columns(script)
    columns = {
        field.name: pa.array([row[index] for row in script.rows], SPARK_TYPES[field.type])
        for index, field in enumerate(script.fields)
    }
    columns[TIME] = pa.array([each.time for each in hidden], pa.int64())
    columns[POSITION] = pa.array([[each.position] for each in hidden], pa.list_(pa.int64()))
    return spark.createDataFrame(pa.table(columns))


def is_in_order(case: Case) -> bool:
    """Return whether no row is late: Spark has no watermarks."""
    hidden = [each for script in case.scripts for each in hidden_columns(script)]
    return all(each.watermark is None or each.time >= each.watermark for each in hidden)


def answered_cases() -> Iterator[tuple[Case, list[Row]]]:
    """Yield random cases with the answers of the oracle that the engine is tested with."""
    oracle = Oracle()
    for seed in count():
        case = random_case(f"spark.{seed}")
        if len(case.nodes) < 3 or not is_in_order(case):
            continue
        try:
            expected = oracle.answer(case)
        except Unanswerable:
            continue
        if expected:
            yield case, expected


def test_random_plans_are_answered_as_the_oracle_does(spark: SparkSession) -> None:
    for case, expected in islice(answered_cases(), RANDOM_CASES):
        frames = {script.name: frame_of(spark, script) for script in case.scripts}
        try:
            assert_same_rows(expected, spark_rows(compile_plan(case.typed(), frames)))
        except AssertionError as error:
            raise AssertionError(f"{case.description()}\n{error}") from None


def test_a_plan_over_an_unknown_stream_is_refused(dataset: Dataset) -> None:
    plan = plan_of("in", **{"in": {"op": "source", "stream": "humdity"}})
    with pytest.raises(InvalidPlan, match="humdity"):
        answer(dataset, plan)


def test_a_sum_beyond_64_bits_fails_the_job(spark: SparkSession, dataset: Dataset) -> None:
    from pyspark.errors import PySparkException

    plan = plan_of(
        "sum",
        motion=SOURCES["motion"],
        sum={
            "op": "aggregate",
            "input": "motion",
            "window": WINDOW,
            "compute": {"total": "sum(9223372036854775807 - home)"},
        },
    )
    with pytest.raises(PySparkException, match="exceeds 64 bits"):
        answer(dataset, plan)[1].collect()


def test_unsupported_expressions_are_named(dataset: Dataset) -> None:
    where = "room LIKE room ESCAPE '!'"
    plan = plan_of("odd", motion=SOURCES["motion"], odd={"op": "select", "input": "motion", "where": where})
    with pytest.raises(UnsupportedPlan, match="constant pattern"):
        answer(dataset, plan)
