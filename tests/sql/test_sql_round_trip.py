"""Every plan can be written as SQL, and reading it gives the same plan but for the names of nodes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.differential.cases import random_case
from tests.support.differential.families.table_joins import NODES, STREAM, TABLE, TableJoinScript
from tests.support.scale import scaled
from tests.support.sql.same_plans import canonical

from mavstream_feeder.demo.queries import CLASSES
from mavstream_feeder.input.sample import STREAMS
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.sql import Catalog, parse_select, plan_to_sql
from mavstream_protocol.typed_plan import StreamShape

DEMO = {name: flow for one in CLASSES for name, flow in one.queries.items()}
READINGS = Schema(
    (
        Field("at", FieldType.TIMESTAMP),
        Field("room", FieldType.STRING, True),
        Field("temperature", FieldType.FLOAT),
        Field("from", FieldType.INT),
    )
)
CATALOG = Catalog(
    {"readings": StreamShape(READINGS, "at"), "raw": StreamShape(READINGS)}, {"rooms": READINGS}
)


def assert_same(plan: Plan, catalog: Catalog) -> str:
    sql = plan_to_sql(plan, catalog)
    assert canonical(parse_select(sql, catalog), catalog) == canonical(plan, catalog), sql
    return sql


@settings(max_examples=scaled(60, 3000), deadline=None)
@given(st.integers(0, 10**6))
def test_random_plans(seed: int) -> None:
    case = random_case(f"{seed}.0")
    streams = {s.name: StreamShape(Schema(s.fields), s.event_time) for s in case.scripts}
    assert_same(Plan.parse({"root": case.root, "nodes": case.nodes}), Catalog(streams))


def fields(text: str) -> Schema:
    split = [part.split() for part in text.split(", ")]
    return Schema(tuple(Field(name, FieldType(type_), bool(null)) for name, type_, *null in split))


@pytest.mark.parametrize("seed", range(20))
def test_random_joins_with_tables(seed: int) -> None:
    script = TableJoinScript.random(Random(seed))
    catalog = Catalog({"readings": StreamShape(fields(STREAM))}, {"rooms": fields(TABLE)})
    assert_same(Plan.parse({"root": "out", "nodes": {**NODES, "out": script.node}}), catalog)


@pytest.mark.parametrize("name", DEMO)
def test_demo_queries(name: str) -> None:
    streams = {spec.name: StreamShape(spec.schema(), spec.event_time) for spec in STREAMS.values()}
    assert_same(DEMO[name].build(), Catalog(streams))


def test_there_are_21_demo_queries() -> None:
    assert len(DEMO) == 21


SOURCE = {"op": "source", "stream": "readings"}
HINTED = {**SOURCE, "hints": {"cost": "250ns", "size": "40B"}}
WINDOW = {
    "kind": "hopping",
    "size": "10s",
    "hop": "1s",
    "begin": "2026-01-01T00:00:00Z",
    "until": "2026-01-02T00:00:00Z",
    "partial": True,
}
PLANS: dict[str, dict[str, Any]] = {
    "a source alone": {"out": SOURCE},
    "a node with the name of the stream": {"readings": {**SOURCE, "stream": "raw"}, "out": {
        "op": "union", "inputs": ["readings", "readings"]}},
    "nodes with words of SQL as names": {"select": SOURCE, "from": {
        "op": "select", "input": "select", "where": "TRUE"}, "out": {
        "op": "union", "inputs": ["from", "select"]}},
    "columns with words of SQL as names": {"in": SOURCE, "out": {
        "op": "project", "input": "in", "compute": {"order": "from + 1", "else": '"from"'}}},
    "comments in expressions": {"in": SOURCE, "out": {
        "op": "select", "input": "in", "where": "from > 1 /* more */ AND -- than\n temperature > 2"}},
    "comments in a split": {"in": SOURCE, "s": {
        "op": "split", "input": "in", "outputs": {"a": "from > 1 /* one */", "b": "from > 0"}}, "out": {
        "op": "union", "inputs": ["s.a", "s.else"]}},
    "the root is an output of a split": {"in": SOURCE, "out": {
        "op": "split", "input": "in", "outputs": {"hot": "temperature > 30"}}},
    "statistics of every operator": {
        "a": HINTED,
        "b": {"op": "select", "input": "a", "where": "from > 1", "hints": {"selectivity": 0.5}},
        "c": {"op": "project", "input": "b", "compute": {"n": "from"}, "hints": {"cost": "1us"}},
        "d": {"op": "union", "inputs": ["c", "c"], "order": "time", "hints": {"cost": "2us"}},
        "e": {"op": "distinct", "input": "d", "window": WINDOW, "hints": {"size": "8B"}},
        "f": {"op": "aggregate", "input": "e", "window": {"kind": "tumbling", "size": 5},
              "compute": {"m": "max(n)"}, "hints": {"selectivity": 0.01}},
        "out": {"op": "select", "input": "f", "where": "m > 2", "hints": {"selectivity": 0.9}}},
    "statistics of a join": {"a": SOURCE, "b": SOURCE, "out": {
        "op": "join", "left": "a", "right": "b", "within": "1s", "on": [["room", "room"]],
        "order": "time", "compute": {"n": "l.from"}, "hints": {"selectivity": 3.0}}},
    "a scaled aggregate": {"in": SOURCE, "out": {
        "op": "aggregate", "input": "in", "by": ["room"], "window": WINDOW, "scaled": True,
        "compute": {"n": "count(*)"}}},
    "a key that is also computed": {"in": SOURCE, "out": {
        "op": "aggregate", "input": "in", "by": ["room", "from"], "window": WINDOW,
        "compute": {"name": "room", "n": "count(*)", "room2": "upper(room)"}}},
    "an aggregate of an aggregate's bounds": {"in": SOURCE, "low": {
        "op": "aggregate", "input": "in", "window": WINDOW, "compute": {"n": "count(*)"}}, "out": {
        "op": "aggregate", "input": "low", "window": {"kind": "tumbling", "size": "1m"},
        "compute": {"last": "max(window_end)"}}},
    "a window join with bounds as keys": {"in": SOURCE, "low": {
        "op": "aggregate", "input": "in", "window": {"kind": "tumbling", "size": "1s"},
        "compute": {"n": "count(*)"}}, "out": {
        "op": "join", "left": "low", "right": "low", "window": {"kind": "tumbling", "size": "1m"},
        "on": [["window_start", "window_start"], ["window_end", "window_start"]],
        "compute": {"since": "l.window_start", "n": "hour(r.window_end) + l.n"}}},
    "a condition like a key": {"in": SOURCE, "t": {"op": "table", "table": "rooms"}, "out": {
        "op": "join", "left": "in", "right": "t", "on": [["room", "room"]], "how": "left",
        "where": "l.from = r.from AND (l.at > r.at AND l.at = r.at)", "compute": {"n": "r.from"}}},
    "a table that two joins read": {"in": SOURCE, "t": {"op": "table", "table": "rooms"}, "a": {
        "op": "join", "left": "in", "right": "t", "on": [["room", "room"]],
        "compute": {"room": "l.room", "n": "r.from"}}, "out": {
        "op": "join", "left": "a", "right": "t", "on": [["n", "from"]], "where": "l.n = r.from",
        "compute": {"room": "r.room"}}},
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_plans_that_need_care(name: str) -> None:
    root = "out.hot" if "root" in name else "out"
    assert_same(Plan.parse({"root": root, "nodes": PLANS[name]}), CATALOG)


def test_a_simple_plan_is_a_simple_query() -> None:
    nodes = {
        "in": SOURCE,
        "hot": {"op": "select", "input": "in", "where": "temperature > 30"},
        "out": {
            "op": "aggregate", "input": "hot", "by": ["room"], "window": {"kind": "tumbling", "size": "1s"},
            "compute": {"n": "count(*)"},
        },
    }  # fmt: skip
    assert assert_same(Plan.parse({"root": "out", "nodes": nodes}), CATALOG) == (
        "SELECT room, count(*) AS n, window_start, window_end\n"
        "FROM TUMBLE(readings, at, INTERVAL '1' SECOND)\n"
        "WHERE temperature > 30\n"
        "GROUP BY room, window_start, window_end"
    )
