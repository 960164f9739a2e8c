"""The types of fields, and the schema of a stream of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class FieldType(StrEnum):
    """The type of a field's values."""

    INT = "int"
    """64-bit signed integer."""
    FLOAT = "float"
    """64-bit floating point; always finite."""
    BOOL = "bool"
    STRING = "string"
    TIMESTAMP = "timestamp"
    """UTC, microseconds since 1970."""

    @property
    def numeric(self) -> bool:
        """Whether arithmetic applies."""
        return self in (FieldType.INT, FieldType.FLOAT)


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed column of a schema."""

    name: str
    type: FieldType
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a stream of rows, in order, with distinct names."""

    fields: tuple[Field, ...]

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return any(field.name == name for field in self.fields)

    def extends(self, other: Schema) -> bool:
        """Return whether it is another one with any number of nullable fields behind the others, or none."""
        known = len(other.fields)
        return self.fields[:known] == other.fields and all(field.nullable for field in self.fields[known:])

    def get(self, name: str) -> Field | None:
        """Return the field of that name, or None."""
        return next((field for field in self.fields if field.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(field.name for field in self.fields)
