"""Fields as people write them: `at timestamp, room string, celsius float null`."""

from __future__ import annotations

from pydantic import ValidationError

from mavstream_protocol import FieldSpec, FieldType, StreamSpec
from mavstream_spark.errors import InvalidJob


def parse_fields(stream: str, text: str, event_time: str | None) -> StreamSpec:
    """Return the stream that a text describes; the first timestamp tells the time if none is named.

    Raises InvalidJob.
    """
    try:
        fields = tuple(_field(part.split()) for part in text.split(","))
        if event_time is None:
            event_time = next((each.name for each in fields if each.type is FieldType.TIMESTAMP), None)
        return StreamSpec(name=stream, fields=fields, event_time=event_time)
    except (ValidationError, ValueError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise InvalidJob(
            f"fields '{text}' make no stream: {reason}; write them like 'at timestamp, room string null'"
        ) from None


def _field(words: list[str]) -> FieldSpec:
    if len(words) not in (2, 3) or words[2:] not in ([], ["null"]):
        raise ValueError(f"'{' '.join(words)}' is not a name, a type and perhaps the word null")
    return FieldSpec(name=words[0], type=FieldType(words[1]), nullable=len(words) == 3)
