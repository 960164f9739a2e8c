"""JSON text of a frame, parsed with an error that a client can act on."""

from __future__ import annotations

import orjson

from mavstream_protocol.tuples.findings import refuse_body

JsonText = bytes | bytearray | memoryview | str


def parse_json(payload: JsonText) -> object:
    """Return the parsed text; raise InvalidTuples if it is not JSON."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise refuse_body("invalid_json", f"tuples cannot be read as JSON: {error}") from None
