"""Infers the fields of a table without declared fields, from its Arrow schema or its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from mavstream_protocol.errors import InvalidTuples, ProblemItem
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.table_rows.csv_cells import FORMS
from mavstream_protocol.tables import TableFields
from mavstream_protocol.tuples.arrow_types import field_type_of
from mavstream_protocol.tuples.cells import shown
from mavstream_protocol.tuples.findings import refuse_body

_KINDS: tuple[tuple[FieldType, frozenset[type]], ...] = (
    (FieldType.INT, frozenset({int})),
    (FieldType.FLOAT, frozenset({int, float})),
    (FieldType.BOOL, frozenset({bool})),
    (FieldType.STRING, frozenset({str})),
)


def arrow_fields(schema: pa.Schema) -> Schema:
    """Return the fields that Arrow columns convert to; raises InvalidTuples."""
    problems, fields = [], []
    for field in schema:
        type_ = field_type_of(field.type)
        if type_ is None:
            detail = (
                f"column '{field.name}' is of the Arrow type {field.type}, which no field can hold: "
                "send integers, floats, booleans, strings or timestamps"
            )
            problems.append(_of_column(field.name, "type_mismatch", detail))
        else:
            fields.append(Field(field.name, type_, field.nullable))
    if problems:
        raise InvalidTuples(problems)
    return _checked(fields)


def text_fields(texts: pa.Table) -> Schema:
    """Return the fields of cells of text: int, float or bool where all look like that, else string."""
    import pyarrow.compute as pc

    fields = []
    for name, column in zip(texts.column_names, texts.columns, strict=True):
        fitting = (
            type_
            for type_, form in FORMS.items()
            if pc.all(pc.match_substring_regex(column, form), min_count=1).as_py()
        )
        fields.append(Field(name, next(fitting, FieldType.STRING), True))
    return _checked(fields)


def json_fields(parsed: Any) -> Schema:
    """Return the fields of JSON rows or columns, all of them nullable; raises InvalidTuples."""
    fields, problems = [], []
    for name, values in _json_columns(parsed).items():
        kinds = {type(value) for value in values if value is not None}
        type_ = (
            next((type_ for type_, known in _KINDS if kinds <= known), None) if kinds else FieldType.STRING
        )
        if type_ is None:
            examples = {type(value): value for value in values if value is not None}
            got = " and ".join(shown(value) for value in examples.values())
            detail = (
                f"column '{name}' has {got}: give numbers, texts or truth values alone, or declare fields"
            )
            problems.append(_of_column(name, "mixed_types", detail))
        else:
            fields.append(Field(name, type_, True))
    if problems:
        raise InvalidTuples(problems)
    return _checked(fields)


def _json_columns(parsed: Any) -> Mapping[str, Iterable[object]]:
    if isinstance(parsed, Mapping):
        for name, values in parsed.items():
            if not isinstance(values, list):
                detail = f"column '{name}' must be a list of values, got {shown(values)}"
                raise InvalidTuples([_of_column(name, "not_a_list", detail)])
        return parsed
    if not isinstance(parsed, list):
        raise refuse_body(
            "not_rows", f"a table is a list of rows or an object of columns, got {shown(parsed)}"
        )
    for number, row in enumerate(parsed):
        if not isinstance(row, dict):
            detail = f"row {number} must be an object, got {shown(row)}"
            raise InvalidTuples([ProblemItem(pointer=f"rows/{number}", code="not_an_object", detail=detail)])
    names = dict.fromkeys(name for row in parsed for name in row)
    return {name: [row.get(name) for row in parsed] for name in names}


def _checked(fields: list[Field]) -> Schema:
    """Return the schema if expressions can name its fields; raises InvalidTuples."""
    if not fields:
        raise refuse_body("no_fields", "the table has no columns: give at least one, or declare fields")
    try:
        return TableFields.of(Schema(tuple(fields))).schema()
    except ValidationError as error:
        raise InvalidTuples(
            [_unusable(item, fields) for item in causes(error.errors(include_url=False))]
        ) from None


def _unusable(item: Any, fields: list[Field]) -> ProblemItem:
    index = item["loc"][1] if len(item["loc"]) > 1 and isinstance(item["loc"][1], int) else None
    if index is None:
        return ProblemItem(
            pointer="columns", code=item["type"], detail=sentence(item, quoted(item, "the table"))
        )
    name = fields[index].name[:64]
    detail = f"column {shown(name)} cannot be a field: use letters, digits and underscores, at most 64"
    return _of_column(name, "invalid_name", detail)


def _of_column(name: str, code: str, detail: str) -> ProblemItem:
    return ProblemItem(pointer=f"columns/{name[:64]}", code=code, detail=detail)
