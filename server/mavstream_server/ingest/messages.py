"""What every message of a producer must have: JSON, an address, a sense."""

from __future__ import annotations

from typing import Any

import orjson

MOST_SEQUENCE = (1 << 63) - 1


class NotUnderstood(Exception):
    """A message that is none of the protocol's, or not expected now: the connection ends."""


def parse(message: str | bytes | memoryview) -> dict[str, Any]:
    """Return the object that a message, or the header of one, is; raises NotUnderstood."""
    try:
        parsed = orjson.loads(message)
    except orjson.JSONDecodeError as error:
        raise NotUnderstood(f"the message is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise NotUnderstood("a message is a JSON object with 'type'")
    return parsed


def kind(parsed: dict[str, Any]) -> str:
    """Return how to name a message in words."""
    return f"{parsed['type']!r}"[:40] if "type" in parsed else "a message without 'type'"


def address(stream: object, sequence: object) -> tuple[str, int]:
    """Return stream and sequence; without them a frame cannot even be rejected. Raises NotUnderstood."""
    if not isinstance(stream, str):
        raise NotUnderstood("a data message needs 'stream', the name of a stream")
    if type(sequence) is not int or not 1 <= sequence <= MOST_SEQUENCE:
        raise NotUnderstood("a data message needs 'sequence', a whole number from 1")
    return stream, sequence
