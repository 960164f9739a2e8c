"""Changes of a stream that `PATCH /v1/streams/{name}` accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import pydantic
from pydantic import ConfigDict, field_validator, model_validator

from mavstream_protocol.described import Described
from mavstream_protocol.explained import refusal
from mavstream_protocol.quantities import PositiveDuration, PositiveSize
from mavstream_protocol.streams import FieldSpec, Retention, distinct_fields

_FIXED = {
    "name": "producers and queries refer to the stream by it",
    "fields": "rows that are stored have them; use add_fields for more",
    "event_time": "the watermarks of rows that are stored follow from it",
    "lateness": "the watermarks of rows that are stored follow from it",
}
"""Settings that cannot change, with the reasons."""


class StreamChange(Described):
    """Changes that `PATCH /v1/streams/{name}` accepts; what is left out stays, null removes a limit."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"add_fields": [{"name": "battery", "type": "float", "nullable": True}]},
                {"retention": "2h", "quota": "4GB"},
                {"quota": None},
            ]
        },
    )
    add_fields: Annotated[tuple[FieldSpec, ...], pydantic.Field(max_length=256)] = ()
    """Nullable fields to add behind the others; they are null in all rows so far."""
    max_ahead: PositiveDuration | None = None
    """Rows whose event time is further in the future than this are rejected."""
    idle_timeout: PositiveDuration | None = None
    """A producer that is silent for this long no longer holds the watermark back."""
    retention: Retention | None = None
    """How long rows are retained after every query has read them; a duration alone limits the age."""
    quota: PositiveSize | None = None
    """The most bytes that the stream may take on disk."""

    @model_validator(mode="before")
    @classmethod
    def _changeable(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            for name, reason in _FIXED.items():
                if name in value:
                    raise refusal(
                        "fixed_setting", f"'{name}' of a stream cannot be changed: {reason}; leave it out"
                    )
        return value

    @field_validator("add_fields")
    @classmethod
    def _nullable(cls, fields: tuple[FieldSpec, ...]) -> tuple[FieldSpec, ...]:
        for field in fields:
            if not field.nullable:
                raise refusal(
                    "field_not_null",
                    f"rows that are stored already have no '{field.name}', so that it cannot be added as a "
                    'field that is never null: add "nullable": true',
                )
        return distinct_fields(fields)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are given, by name, as JSON values."""
        return self.model_dump(mode="json", include=self.model_fields_set - {"add_fields"})
