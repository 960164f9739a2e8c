"""The body of a request that was not parsed yet, since it is large."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from mavstream_protocol.errors import InvalidObject, ProblemItem


class InvalidJson(InvalidObject):
    """A text that is not JSON."""

    code = "invalid_json"
    title = "The body is not JSON"


class JsonBody(NamedTuple):
    """A JSON text that is to be parsed in another process."""

    text: bytes

    def parse(self) -> Any:
        """Return the value; raises InvalidJson."""
        try:
            return orjson.loads(self.text)
        except orjson.JSONDecodeError as error:
            detail = f"the body is not JSON: {error}"
            raise InvalidJson([ProblemItem(pointer="body", code="invalid_json", detail=detail)]) from None


def parsed(data: object) -> object:
    """Return a JSON value, parsed if it was not; raises InvalidJson."""
    return data.parse() if isinstance(data, JsonBody) else data
