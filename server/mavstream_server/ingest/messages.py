"""Parsing of producer messages: JSON objects with a type, a stream and a sequence."""

from __future__ import annotations

from typing import Any

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
