"""JSON bodies of requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from mavstream_protocol import InvalidObject, ProblemItem


def json_body(value: Any, *, option: int = 0) -> bytes:
    """Return a value as JSON; raises InvalidObject that names the part which JSON cannot express."""
    try:
        return orjson.dumps(value, option=option)
    except TypeError as error:
        pointer, part = next(_not_json(value, option, ()), ((), None))
        detail = (
            f"expected text, a number, a list or an object, got {_shown(part)}" if pointer else str(error)
        )
        item = ProblemItem(pointer="/".join(pointer) or "body", code="invalid_value", detail=detail)
        raise InvalidObject([item]) from None


def _not_json(value: Any, option: int, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the innermost parts that are not JSON, with their paths."""
    if isinstance(value, Mapping | list | tuple):
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, part in parts:
            yield from _not_json(part, option, (*path, str(key)))
        return
    try:
        orjson.dumps(value, option=option)
    except TypeError:
        yield path, value


def _shown(value: Any) -> str:
    if isinstance(value, type):
        return f"the Python type {value.__name__}: write its name as text, '{value.__name__}'"
    if callable(value):
        return "a Python function: write it as text, such as 'temperature > 30'"
    return f"a value of type {type(value).__name__}: convert it"
