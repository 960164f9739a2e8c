from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from mavstream_protocol import Field, FieldType, Schema, StreamSpec

READINGS: dict[str, Any] = {
    "name": "readings",
    "fields": [
        {"name": "at", "type": "timestamp"},
        {"name": "seen", "type": "timestamp", "nullable": True},
        {"name": "temperature", "type": "float", "nullable": True},
    ],
    "event_time": "at",
    "lateness": "2s",
    "max_ahead": "1m",
    "idle_timeout": "30s",
    "retention": {"time": "1h", "bytes": "1GB"},
    "quota": "2GB",
}


def refusal(**changes: object) -> tuple[tuple[object, ...], str, str]:
    with pytest.raises(ValidationError) as caught:
        StreamSpec.model_validate({**READINGS, **changes})
    (error,) = caught.value.errors()
    return error["loc"], error["type"], error["msg"]


def field(name: object, kind: str = "int") -> dict[str, object]:
    return {"name": name, "type": kind}


def test_a_stream_gives_its_schema() -> None:
    assert StreamSpec.model_validate(READINGS).schema() == Schema(
        (
            Field("at", FieldType.TIMESTAMP),
            Field("seen", FieldType.TIMESTAMP, nullable=True),
            Field("temperature", FieldType.FLOAT, nullable=True),
        )
    )


def test_a_stream_needs_only_a_name_and_fields() -> None:
    spec = StreamSpec.model_validate({"name": "s", "fields": [field("a")]})
    assert (spec.event_time, spec.lateness, spec.retention, spec.quota) == (None, 0, None, None)


def test_a_stream_is_written_as_it_was_given() -> None:
    spec = StreamSpec.model_validate(READINGS)
    assert StreamSpec.model_validate_json(spec.model_dump_json()) == spec
    assert spec.model_dump(mode="json", exclude_defaults=True) == READINGS


def test_a_duration_alone_is_a_retention() -> None:
    spec = StreamSpec.model_validate({**READINGS, "retention": "1h"})
    assert spec.retention is not None
    assert (spec.retention.time, spec.retention.bytes) == (3_600_000_000, None)


def test_a_stream_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        StreamSpec.model_validate(READINGS).name = "other"


RULES = "use letters a-z, digits and _, and no digit in front"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("1st", f"name '1st' is not an identifier: {RULES}"),
        ("a b", f"name 'a b' is not an identifier: {RULES}, such as 'a_b'"),
        ("a\n", f"name 'a\n' is not an identifier: {RULES}, such as 'a'"),
        ("é", f"name 'é' is not an identifier: {RULES}"),
        ("a" * 65, f"name '{'a' * 64}...' has 65 characters: use at most 64"),
        (7, "name must be text, got a value of type int"),
    ],
)
def test_a_wrong_name_is_explained(name: object, message: str) -> None:
    assert refusal(name=name) == (("name",), "name", message)


@pytest.mark.parametrize(
    ("changes", "where", "code", "message"),
    [
        (
            {"fields": [field("at", "timestamp"), field("Window_End")]},
            ("fields",),
            "reserved_name",
            "field 'Window_End' has a name that windowed operators add: use another name",
        ),
        (
            {"fields": [field("at", "timestamp"), field("a"), field("A")]},
            ("fields",),
            "duplicate_name",
            "fields 1 and 2 are both named 'A' (case is ignored): rename one",
        ),
        (
            {"event_time": "when"},
            ("event_time",),
            "unknown_field",
            "event_time names 'when', which is not a field of the stream: its timestamp fields are at, seen",
        ),
        (
            {"fields": [field("a")]},
            ("event_time",),
            "unknown_field",
            "event_time names 'at', which is not a field of the stream: it has no timestamp field, add one",
        ),
        (
            {"event_time": "temperature"},
            ("event_time",),
            "type_mismatch",
            "event_time names 'temperature', which is of type float: it must be a timestamp",
        ),
        (
            {"event_time": "seen"},
            ("event_time",),
            "nullable_event_time",
            "event_time names 'seen', which is nullable: every row needs a time, make it not null",
        ),
        (
            {"event_time": None, "max_ahead": None},
            ("lateness",),
            "needs_event_time",
            "lateness has no meaning without event_time: name a timestamp field there, or leave lateness out",
        ),
        (
            {"event_time": None, "lateness": "0s"},
            ("max_ahead",),
            "needs_event_time",
            "max_ahead has no meaning without event_time: name a timestamp field there, "
            "or leave max_ahead out",
        ),
        (
            {"retention": {}},
            ("retention",),
            "empty_retention",
            "retention limits nothing: give a duration such as 1h, or an object with 'time' or 'bytes'",
        ),
        (
            {"quota": "1MB"},
            ("quota",),
            "quota_below_retention",
            "quota 1MB is below the 1GB that retention keeps, so producers would wait for ever: "
            "raise quota or lower retention",
        ),
        (
            {"fields": []},
            ("fields",),
            "too_short",
            "Tuple should have at least 1 item after validation, not 0",
        ),
        ({"colour": "red"}, ("colour",), "extra_forbidden", "Extra inputs are not permitted"),
    ],
)
def test_errors_in_a_stream_are_explained(
    changes: dict[str, object], where: tuple[object, ...], code: str, message: str
) -> None:
    assert refusal(**changes) == (where, code, message)


def test_a_stream_has_at_most_256_fields() -> None:
    fields = [field("at", "timestamp"), *(field(f"f{number}") for number in range(256))]
    assert refusal(fields=fields)[:2] == (("fields",), "too_long")
    StreamSpec.model_validate({**READINGS, "fields": fields[:256]})


def test_the_json_schema_documents_every_field_and_shows_defaults_as_text() -> None:
    properties = StreamSpec.model_json_schema()["properties"]
    assert all(shown.get("description") for shown in properties.values())
    assert properties["lateness"]["default"] == "0s"
