"""Errors of pydantic in the words of the service: what was expected, what was found, no names of classes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from mavstream_protocol import StreamSpec
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.qos import QosSpec
from mavstream_protocol.specification import Specification

READINGS = {"name": "readings", "fields": [{"name": "x", "type": "float"}]}
DELAY = {"metric": "delay", "quantifier": "minimise"}


def said(model: type[BaseModel], value: object) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(value)
    return [sentence(error, quoted(error, "it")) for error in causes(caught.value.errors())]


@pytest.mark.parametrize(
    ("model", "value", "expected"),
    [
        (StreamSpec, {"name": "readings"}, "'fields' is required"),
        (StreamSpec, {**READINGS, "colour": 1}, "'colour' is not known here: leave it out"),
        (StreamSpec, {**READINGS, "fields": []}, "'fields' must have at least 1 item, got []"),
        (StreamSpec, {**READINGS, "fields": "x float"}, "'fields' must be a list, got 'x float'"),
        (StreamSpec, 3, "it must be an object, got 3"),
        (StreamSpec, {**READINGS, "fields": ["x"]}, "'0' must be an object, got 'x'"),
        (QosSpec, {"latency": 3}, "'latency' must be an object, got 3"),
        (
            Specification,
            {"requirements": [{**DELAY, "weight": -1}]},
            "'weight' must be greater than 0, got -1",
        ),
        (
            Specification,
            {"requirements": [{**DELAY, "weight": "heavy"}]},
            "'weight' must be a number, got 'heavy'",
        ),
        (
            Specification,
            {"requirements": [DELAY, DELAY]},
            "metric 'delay' is named more than once; give it one weight",
        ),
    ],
)
def test_an_error_is_a_sentence_without_words_of_pydantic(
    model: type[BaseModel], value: Any, expected: str
) -> None:
    assert said(model, value) == [expected]


def test_a_list_with_a_wrong_item_is_not_also_too_short() -> None:
    value = {**READINGS, "fields": [{"name": "x", "type": "flaot"}]}
    assert said(StreamSpec, value) == [
        "'type' must be 'int', 'float', 'bool', 'string' or 'timestamp', got 'flaot'"
    ]


def test_a_value_that_may_be_secret_is_not_quoted() -> None:
    with pytest.raises(ValidationError) as caught:
        StreamSpec.model_validate({**READINGS, "fields": "s3cret"})
    (error,) = causes(caught.value.errors(include_input=False))
    assert sentence(error, "'fields'", shown=False) == "'fields' must be a list"


def test_a_long_value_is_cut() -> None:
    (text,) = said(StreamSpec, {**READINGS, "fields": "x" * 1000})
    assert text.endswith("...")
    assert len(text) < 100
