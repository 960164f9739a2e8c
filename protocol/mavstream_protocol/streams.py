"""Stream specifications: fields, event time, watermarks, retention and quota."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic
from pydantic import ConfigDict, ValidationInfo, field_validator, model_validator

from mavstream_protocol.described import Described
from mavstream_protocol.explained import refusal
from mavstream_protocol.names import Name
from mavstream_protocol.quantities import Duration, PositiveDuration, PositiveSize, format_size
from mavstream_protocol.schema import Field, FieldType, Schema

RESERVED_NAMES = frozenset({"window_start", "window_end"})
"""Columns that windowed operators add; no stream may have a field of such a name."""

_CONFIG = ConfigDict(frozen=True, extra="forbid")


class FieldSpec(Described):
    """One field of a stream, or of a query's answers."""

    model_config = _CONFIG

    name: Name
    """Identifier of at most 64 characters; in a stream not `window_start` or `window_end`."""
    type: FieldType
    """Type of the values: int, float, bool, string or timestamp."""
    nullable: bool = False
    """Whether a row may omit the field or contain null."""


class Retention(Described):
    """How much of a stream is retained after every query has read it."""

    model_config = _CONFIG

    time: PositiveDuration | None = None
    """Rows older than this may be removed."""
    bytes: PositiveSize | None = None
    """The oldest rows may be removed while the stream is larger than this."""

    @model_validator(mode="before")
    @classmethod
    def _from_duration(cls, value: Any) -> Any:
        return {"time": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _limited(self) -> Retention:
        if self.time is None and self.bytes is None:
            raise refusal(
                "empty_retention",
                "retention limits nothing: give a duration such as 1h, or an object with 'time' or 'bytes'",
            )
        return self


def distinct_fields(fields: tuple[FieldSpec, ...]) -> tuple[FieldSpec, ...]:
    """Return the fields if their names are distinct; otherwise raise ValueError."""
    seen: dict[str, int] = {}
    for index, field in enumerate(fields):
        if field.name.lower() in RESERVED_NAMES:
            raise refusal(
                "reserved_name",
                f"field '{field.name}' has a name that windowed operators add: use another name",
            )
        # Names in expressions are found regardless of case, as in SQL.
        first = seen.setdefault(field.name.lower(), index)
        if first != index:
            raise refusal(
                "duplicate_name",
                f"fields {first} and {index} are both named '{field.name}' (case is ignored): rename one",
            )
    return fields


class StreamSpec(Described):
    """A stream as a client registers it."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [
                {
                    "name": "readings",
                    "fields": [
                        {"name": "at", "type": "timestamp"},
                        {"name": "home", "type": "string"},
                        {"name": "temperature", "type": "float", "nullable": True},
                    ],
                    "event_time": "at",
                    "lateness": "2s",
                    "retention": {"time": "1h", "bytes": "1GB"},
                }
            ]
        },
    )

    name: Name
    """Identifier of at most 64 characters."""
    fields: Annotated[tuple[FieldSpec, ...], pydantic.Field(min_length=1, max_length=256)]
    """1 to 256 fields with distinct names, in order; names that differ only in case are not distinct."""
    event_time: Name | None = None
    """The timestamp field, never null, with the event time of a row; without it, the arrival time is used."""
    lateness: Annotated[Duration, pydantic.Field(json_schema_extra={"default": "0s"})] = 0
    """How far a row may lag behind the latest event time before it is late; requires `event_time`."""
    max_ahead: PositiveDuration | None = None
    """Rows whose event time is further in the future than this are rejected; requires `event_time`."""
    idle_timeout: PositiveDuration | None = None
    """A producer that is silent for this long no longer holds the watermark back."""
    retention: Retention | None = None
    """How long rows are retained after every query has read them; a duration alone limits the age."""
    quota: PositiveSize | None = None
    """The most bytes that the stream may take on disk; at the quota its producers are slowed down."""

    # Validators of two fields are attached to the later one, so that the error points at a field.

    @field_validator("fields")
    @classmethod
    def _distinct(cls, fields: tuple[FieldSpec, ...]) -> tuple[FieldSpec, ...]:
        return distinct_fields(fields)

    @field_validator("event_time")
    @classmethod
    def _is_timestamp(cls, name: str | None, info: ValidationInfo) -> str | None:
        fields = info.data.get("fields")
        if name is None or fields is None:
            return name
        field = next((field for field in fields if field.name == name), None)
        if field is None:
            known = ", ".join(field.name for field in fields if field.type is FieldType.TIMESTAMP)
            raise refusal(
                "unknown_field",
                f"event_time names '{name}', which is not a field of the stream: "
                + (f"its timestamp fields are {known}" if known else "it has no timestamp field, add one"),
            )
        if field.type is not FieldType.TIMESTAMP:
            raise refusal(
                "type_mismatch",
                f"event_time names '{name}', which is of type {field.type}: it must be a timestamp",
            )
        if field.nullable:
            raise refusal(
                "nullable_event_time",
                f"event_time names '{name}', which is nullable: every row needs a time, make it not null",
            )
        return name

    @field_validator("lateness", "max_ahead")
    @classmethod
    def _needs_event_time(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value and info.data.get("event_time", "invalid") is None:
            raise refusal(
                "needs_event_time",
                f"{info.field_name} has no meaning without event_time: name a timestamp field there, "
                f"or leave {info.field_name} out",
            )
        return value

    @field_validator("quota")
    @classmethod
    def _holds_retention(cls, quota: int | None, info: ValidationInfo) -> int | None:
        retention = info.data.get("retention")
        if quota is not None and retention is not None and (retention.bytes or 0) > quota:
            raise refusal(
                "quota_below_retention",
                f"quota {format_size(quota)} is below the {format_size(retention.bytes)} that retention "
                "keeps, so producers would wait for ever: raise quota or lower retention",
            )
        return quota

    # BaseModel still carries a deprecated class method of this name, which nothing here uses.
    def schema(self) -> Schema:  # type: ignore[override]
        """Return the schema of the stream's rows."""
        return Schema(tuple(Field(field.name, field.type, field.nullable) for field in self.fields))


class DerivedStreamSpec(StreamSpec):
    """A stream that has the results of a query; it cannot be fed."""

    derived_from: str
    """The id of the query."""

    @field_validator("fields")
    @classmethod
    def _distinct(cls, fields: tuple[FieldSpec, ...]) -> tuple[FieldSpec, ...]:
        return fields  # those of windowed operators are among them


def field_specs(schema: Schema) -> tuple[FieldSpec, ...]:
    """Return the fields of a schema as clients see them; they were validated before."""
    return tuple(
        FieldSpec.model_construct(name=field.name, type=field.type, nullable=field.nullable)
        for field in schema
    )
