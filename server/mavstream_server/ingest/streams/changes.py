"""Changes of stream specifications: more nullable fields, other limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from mavstream_protocol.errors import InvalidObject, ProblemItem
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.schema import Field
from mavstream_protocol.streams import FieldSpec, StreamSpec
from mavstream_protocol.wire.stream_change import StreamChange
from mavstream_server.core.errors import Conflict


class InvalidChange(InvalidObject):
    """A change with which the specification of a stream would contradict itself."""

    code = "invalid_change"
    title = "The stream cannot be changed like this"


def changed_spec(spec: StreamSpec, change: StreamChange) -> StreamSpec:
    """Return a stream's specification after a change; raises Conflict, InvalidChange.

    It is equal to the one before if everything is as the change wants it already.
    """
    added = [field for field in change.add_fields if not _has(spec, field)]
    values = {**spec.model_dump(mode="json"), **change.settings, "fields": (*spec.fields, *added)}
    try:
        return StreamSpec.model_validate(values)
    except ValidationError as error:
        raise InvalidChange([_item(one) for one in causes(error.errors(include_url=False))]) from None


def with_fields(spec: StreamSpec, added: Iterable[Field]) -> StreamSpec:
    """Return a specification with more fields, which its log has."""
    return spec.model_copy(update={"fields": (*spec.fields, *map(_spec_of, added))})


def changes_between(before: StreamSpec, after: StreamSpec) -> tuple[str, ...]:
    """Return what is different: `fields/NAME` for each field that was added, and names of settings."""
    added = after.fields[len(before.fields) :]
    settings = [
        name
        for name in StreamSpec.model_fields
        if name != "fields" and getattr(before, name) != getattr(after, name)
    ]
    return (*(f"fields/{field.name}" for field in added), *settings)


def _spec_of(field: Field) -> FieldSpec:
    return FieldSpec(name=field.name, type=field.type, nullable=field.nullable)


def _has(spec: StreamSpec, field: FieldSpec) -> bool:
    """Return whether a stream has a field already; raises Conflict if it has another one of that name."""
    # Names in expressions are found regardless of case.
    found = next((one for one in spec.fields if one.name.lower() == field.name.lower()), None)
    if found is None or found == field:
        return found is not None
    raise Conflict(
        f"stream '{spec.name}' has a field {_shown(found)} already, so that {_shown(field)} cannot be added: "
        "choose another name",
        code="field_exists",
    )


def _shown(field: FieldSpec) -> str:
    return f"'{field.name}' ({field.type}, {'nullable' if field.nullable else 'never null'})"


def _item(error: Mapping[str, Any]) -> ProblemItem:
    pointer = str(error["loc"][0]).replace("fields", "add_fields")
    return ProblemItem(
        pointer=pointer, code=error["type"], detail=sentence(error, quoted(error, "the change"))
    )
