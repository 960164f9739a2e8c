"""Messages of producers: parsing of JSON objects, and the reasons with which connections are closed."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

MOST_SEQUENCE = (1 << 63) - 1


class NotUnderstood(Exception):
    """A message that is not part of the protocol, or not expected now; it closes the connection."""


def parse(message: str | bytes | memoryview) -> dict[str, Any]:
    """Return the JSON object in a message or a message header; raises NotUnderstood."""
    try:
        parsed = orjson.loads(message)
    except orjson.JSONDecodeError as error:
        raise NotUnderstood(f"the message is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise NotUnderstood("a message is a JSON object with 'type'")
    return parsed


def kind(parsed: dict[str, Any]) -> str:
    """Return how error messages name a message."""
    return f"{parsed['type']!r}"[:40] if "type" in parsed else "a message without 'type'"


def address(stream: object, sequence: object) -> tuple[str, int]:
    """Return the stream and the sequence of a frame; raises NotUnderstood, since a reject needs both."""
    if not isinstance(stream, str):
        raise NotUnderstood("a data message needs 'stream', the name of a stream")
    if type(sequence) is not int or not 1 <= sequence <= MOST_SEQUENCE:
        raise NotUnderstood("a data message needs 'sequence', a whole number from 1")
    return stream, sequence


class Close(NamedTuple):
    """The close code and reason to send."""

    code: int
    reason: str


def cut_reason(reason: str) -> str:
    """Return a reason cut to the 123 bytes that fit into a close frame."""
    data = reason.encode(errors="replace")
    return reason if len(data) <= 123 else data[:120].decode(errors="ignore") + "..."
