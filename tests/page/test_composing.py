"""Drafts of queries: SQL and operators as two forms of one plan, edits of graphs, undoing."""

from __future__ import annotations

import pytest

from mavstream_page.composer import editing
from mavstream_page.composer.draft import Draft
from mavstream_page.composer.exchange import taken_in, text_of_file
from mavstream_page.composer.operators import Operators, new_operator, operators_of
from mavstream_protocol import InvalidObject, Plan
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.sql import Catalog, parse_select
from mavstream_protocol.typed_plan import StreamShape

FIELDS = (
    Field("at", FieldType.TIMESTAMP),
    Field("room", FieldType.STRING),
    Field("celsius", FieldType.FLOAT),
)
SHAPE = StreamShape(Schema(FIELDS), "at")
FLOORS = Schema((Field("room", FieldType.STRING), Field("floor", FieldType.INT)))
CATALOG = Catalog({"readings": SHAPE, "motion": SHAPE}, {"rooms": FLOORS})
WITHIN = "r.at BETWEEN l.at - INTERVAL '1' SECOND AND l.at + INTERVAL '{}' SECOND"


def draft(sql: str = "") -> Draft:
    made = Draft()
    made.catalog = CATALOG
    made.write(sql)
    return made


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT room, celsius FROM readings WHERE celsius > 30",
        "SELECT room, avg(celsius) AS mean, window_end FROM HOP(readings, at, INTERVAL '1' SECOND, "
        "INTERVAL '10' SECOND) GROUP BY room, window_end HAVING count(*) > 3",
        "SELECT room, count(*) AS n FROM readings GROUP BY room, SESSION(at, INTERVAL '30' SECOND)",
        "SELECT avg(celsius) AS mean FROM TUMBLE(readings, ROWS 100) GROUP BY window_end",
        "SELECT DISTINCT room, window_start, window_end FROM TUMBLE(readings, at, INTERVAL '1' MINUTE)",
        f"SELECT l.room, r.celsius FROM readings l JOIN motion r ON l.room = r.room AND {WITHIN.format(1)}",
        f"SELECT l.room, r.celsius FROM readings l JOIN motion r ON l.room = r.room AND {WITHIN.format(2)}",
        "SELECT room, celsius, floor FROM readings LEFT JOIN rooms USING (room)",
        "SELECT room FROM readings UNION ALL SELECT room FROM motion",
        "SELECT /*+ PARTIAL */ count(*) AS n FROM TUMBLE(readings, at, INTERVAL '1' MINUTE) "
        "GROUP BY window_end",
    ],
)
def test_operators_give_the_plan_that_they_were_made_of(sql: str) -> None:
    plan = parse_select(sql, CATALOG)
    nodes = {name: operator.node() for name, operator in operators_of(plan).items()}
    assert Plan.parse({"root": plan.root, "nodes": nodes}) == plan


def test_a_split_gives_the_plan_that_it_was_made_of() -> None:
    nodes = {
        "in": {"op": "source", "query": "hot_rooms"},
        "parts": {"op": "split", "input": "in", "outputs": {"hot": "celsius >= 30", "cold": "celsius < 5"}},
        "both": {"op": "union", "inputs": ["parts.hot", "parts.else"], "order": "time"},
    }
    plan = Plan.parse({"root": "both", "nodes": nodes})
    operators = operators_of(plan)
    assert operators["in"].texts["stream"] == "query:hot_rooms"
    assert editing.outputs(operators, "parts") == ["parts.hot", "parts.cold", "parts.else"]
    assert (
        Plan.parse({"root": "both", "nodes": {name: one.node() for name, one in operators.items()}}) == plan
    )


def test_sql_follows_the_operators_and_operators_follow_the_sql() -> None:
    made = draft("SELECT room FROM readings WHERE celsius > 30")
    assert list(made.operators) == ["readings", "where", "result"]
    made.fill("where", {"where": "celsius > 40"})
    assert "WHERE celsius > 40" in made.sql
    made.write(made.sql.replace("40", "50"))
    assert made.operators["where"].texts["where"] == "celsius > 50"
    assert made.ready


def test_sql_that_cannot_be_read_keeps_the_graph() -> None:
    made = draft("SELECT room FROM readings")
    made.write("SELECT room FROM readings WHERE")
    assert list(made.operators) == ["readings", "result"]
    assert made.operators_are_old
    assert made.errors[0].line == 1
    with made.edit() as operators:
        editing.add(operators, "distinct", "result")
    assert made.sql.startswith("SELECT DISTINCT")
    assert made.ready


def test_incomplete_operators_keep_the_sql_and_what_is_known_of_columns() -> None:
    made = draft("SELECT * FROM readings")
    with made.edit() as operators:
        editing.add(operators, "select", "readings")
    assert made.sql_is_old
    assert not made.ready
    assert made.sql == "SELECT * FROM readings"
    assert [each.name for each in made.reading.schemas["readings"]] == ["at", "room", "celsius"]
    assert made.errors_of("select") == ["'where' is required"]
    made.fill("select", {"where": "celsuis > 3"})
    assert "celsuis" in made.errors_of("select")[0]


def test_an_operator_that_nothing_reads_is_named() -> None:
    made = draft("SELECT room FROM readings")
    with made.edit() as operators:
        editing.add(operators, "source", stream="motion")
    assert made.errors_of("motion") == [
        "nothing reads motion, and the answer is result: connect motion to another operator, or remove it"
    ]


def test_edits_are_undone_and_done_again() -> None:
    made = draft("SELECT room FROM readings")
    before = made.sql
    with made.edit() as operators:
        editing.add(operators, "select", "readings")
    for text in ("c", "celsius", "celsius > 30"):
        made.fill("select", {"where": text})
    after = made.sql
    made.undo()
    assert made.operators["select"].texts["where"] == ""
    made.undo()
    assert made.sql == before
    assert not made.can_undo
    made.redo()
    made.redo()
    assert made.sql == after
    assert not made.can_redo


def test_an_edit_that_is_refused_changes_nothing() -> None:
    made = draft("SELECT room FROM readings WHERE celsius > 30")
    with (
        pytest.raises(ValueError, match="where cannot read result: rows would go in a circle"),
        made.edit() as it,
    ):
        editing.connect(it, "result", "where")
    with pytest.raises(ValueError, match="there is an operator result already"):
        made.rename("where", "result")
    assert made.ready
    assert not made.can_undo


def test_names_follow_a_renaming() -> None:
    made = draft("SELECT room FROM readings WHERE celsius > 30")
    made.rename("where", "hot")
    assert made.operators["result"].texts["input"] == "hot"
    assert made.ready


def graph() -> Operators:
    made: Operators = {}
    editing.add(made, "source", stream="readings")
    editing.add(made, "select", "readings")
    return made


def test_an_operator_is_added_between_another_and_its_readers() -> None:
    made = graph()
    assert editing.add(made, "project", "readings") == "project"
    assert editing.edges(made) == [("project", "select", "input"), ("readings", "project", "input")]


def test_an_operator_is_inserted_in_one_edge_alone() -> None:
    made = graph()
    made["other"] = new_operator("select", input="readings")
    editing.insert(made, editing.add(made, "distinct"), "readings", "other")
    assert made["other"].texts["input"] == "distinct"
    assert made["select"].texts["input"] == "readings"


def test_a_join_takes_the_left_then_the_right_and_a_table_on_the_right() -> None:
    made = graph()
    editing.add(made, "table", table="rooms")
    editing.add(made, "join")
    editing.connect(made, "rooms", "join")
    editing.connect(made, "select", "join")
    assert (made["join"].texts["left"], made["join"].texts["right"]) == ("select", "rooms")
    with pytest.raises(ValueError, match="a table is the right side of a join"):
        editing.connect(made, "rooms", "select")


def test_a_removed_operator_leaves_its_input_to_those_that_read_it() -> None:
    made = graph()
    editing.add(made, "distinct", "select")
    editing.remove(made, "select")
    assert made["distinct"].texts["input"] == "readings"


def test_edges_are_cut() -> None:
    made = graph()
    editing.disconnect(made, ("readings", "select"))
    assert editing.edges(made) == []


def test_plans_queries_and_sql_are_taken_in() -> None:
    plan = '{"root": "in", "nodes": {"in": {"op": "source", "stream": "readings"}}}'
    for text in (plan, f'{{"name": "all", "plan": {plan}}}', '{"sql": "SELECT * FROM readings"}'):
        made = draft()
        taken_in(made, text)
        assert made.ready, text
    with pytest.raises(InvalidObject, match="nodes"):
        taken_in(draft(), '{"root": "in"}')
    with pytest.raises(ValueError, match=r"photo\.png is no text"):
        text_of_file("photo.png", 3, "//79")
