"""Plans and specifications as dicts, models, flows and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mavstream import InvalidObject, stream
from mavstream._convert.documents import query_document, read_document, stream_document, validation_document
from mavstream_protocol import QosSpec, QuerySpec, StreamSpec

PLAN = {"version": 1, "root": "hot", "nodes": {"hot": {"op": "source", "stream": "readings"}}}
YAML = """
root: pairs
nodes:
  a: {op: source, stream: a}
  b: {op: source, stream: b}
  pairs:
    op: join
    left: a
    right: b
    on: [[home, home]]
    within: 500ms
"""


def test_a_plan_becomes_a_query_that_the_server_names_like_its_root() -> None:
    assert query_document(PLAN, {}) == {"plan": PLAN}
    assert QuerySpec.model_validate({"plan": PLAN}).name == "hot"


def test_keyword_arguments_take_precedence() -> None:
    spec = {"plan": PLAN, "name": "hot", "class": "default"}
    given = {"name": None, "class_": "alarms", "from_": "earliest", "qos": QosSpec()}
    found = query_document(spec, given)
    assert (found["name"], found["class"], found["from"]) == ("hot", "alarms", "earliest")
    assert found["qos"]["max_loss"] == "0%"
    assert spec["class"] == "default"


def test_models_and_flows_are_accepted() -> None:
    flow = stream("readings").where("a > 1").named("hot")
    spec = QuerySpec(name="q", plan=flow.build(), class_="alarms")
    assert query_document(flow, {})["plan"]["root"] == "hot"
    assert query_document(flow.build(), {})["plan"]["root"] == "hot"
    assert query_document(spec, {})["class"] == "alarms"
    assert QuerySpec.model_validate(query_document(spec, {})) == spec


def test_a_check_of_a_plan_points_into_the_plan() -> None:
    assert validation_document(PLAN, {"mode": None}) == PLAN
    assert validation_document(PLAN, {"mode": "one_time"})["plan"] == PLAN


def test_files_name_their_queries(tmp_path: Path) -> None:
    file = tmp_path / "hot-homes.yaml"
    file.write_text(YAML)
    assert query_document(file, {})["name"] == "hot_homes"
    assert query_document(str(file), {"name": "mine"})["name"] == "mine"


def test_yaml_keeps_on_as_a_key_and_instants_as_text(tmp_path: Path) -> None:
    file = tmp_path / "q.yaml"
    file.write_text(YAML + "start_at: 2026-01-01T00:00:00Z\nflag: true\nanswer: no\nnumber: 1.5\n")
    found = read_document(file)
    assert found["nodes"]["pairs"]["on"] == [["home", "home"]]
    assert found["start_at"] == "2026-01-01T00:00:00Z"
    assert (found["flag"], found["answer"], found["number"]) == (True, "no", 1.5)


def test_json_files_are_read_as_json(tmp_path: Path) -> None:
    file = tmp_path / "q.json"
    file.write_text('{"root": "a"}')
    assert read_document(file) == {"root": "a"}


@pytest.mark.parametrize(
    ("name", "content", "printed"),
    [
        ("q.json", "{", "cannot be read: it is no JSON: unexpected end of data"),
        ("q.yaml", "a: [", "cannot be read: it is no YAML: line 1, column 5"),
        ("q.yaml", "- a", "expected an object in YAML or JSON, such as 'name: readings', got a list"),
    ],
)
def test_errors_of_unreadable_files_are_explained(
    tmp_path: Path, name: str, content: str, printed: str
) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(InvalidObject, match=printed):
        read_document(file)
    with pytest.raises(InvalidObject, match="No such file"):
        read_document(tmp_path / "none.yaml")


def test_a_stream_is_given_as_a_specification_a_dict_or_names() -> None:
    spec = StreamSpec.model_validate(
        {"name": "s", "fields": [{"name": "a", "type": "int"}], "retention": "1h"}
    )
    assert StreamSpec.model_validate(stream_document(spec, {})) == spec
    assert stream_document({"name": "s"}, {"name": "t"}) == {"name": "t"}
    assert stream_document(None, {"name": "t", "fields": []}) == {"name": "t", "fields": []}
