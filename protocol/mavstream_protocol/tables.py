"""Stored tables: the specification that a client sends in addition to the rows."""

from __future__ import annotations

from typing import Annotated

import pydantic
from pydantic import BaseModel, ConfigDict, field_validator

from mavstream_protocol.explained import refusal
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.streams import FieldSpec, distinct_fields


class TableFields(BaseModel):
    """The fields of a table, 1 to 256, with distinct names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fields: Annotated[tuple[FieldSpec, ...], pydantic.Field(min_length=1, max_length=256)]

    @field_validator("fields")
    @classmethod
    def _distinct(cls, fields: tuple[FieldSpec, ...]) -> tuple[FieldSpec, ...]:
        return distinct_fields(fields)

    @classmethod
    def of(cls, schema: Schema) -> TableFields:
        """Return the fields of a schema; raises ValidationError for names that cannot be used."""
        fields = [{"name": f.name, "type": f.type, "nullable": f.nullable} for f in schema]
        return cls.model_validate({"fields": fields})

    # BaseModel still carries a deprecated class method of this name, which nothing here uses.
    def schema(self) -> Schema:  # type: ignore[override]
        """Return the schema of the table's rows."""
        return Schema(tuple(Field(field.name, field.type, field.nullable) for field in self.fields))


def write_fields(fields: tuple[FieldSpec, ...]) -> str:
    """Return fields as the address of a request carries them: `room:string,threshold:float?`."""
    return ",".join(f"{one.name}:{one.type}{'?' if one.nullable else ''}" for one in fields)


def read_fields(text: str) -> TableFields:
    """Parse `room:string,threshold:float?`, where `?` marks a nullable field; raises ValueError."""
    fields = []
    for part in text.split(","):
        name, colon, kind = part.strip().partition(":")
        type_ = kind.removesuffix("?")
        if not colon or type_ not in set(FieldType):
            raise refusal(
                "invalid_field",
                f"{part.strip()!r} is not NAME:TYPE with a type of {', '.join(FieldType)}, as in "
                "room:string,threshold:float?",
            )
        fields.append({"name": name, "type": type_, "nullable": kind.endswith("?")})
    return TableFields.model_validate({"fields": fields})
