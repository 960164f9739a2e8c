"""Names of streams, fields, classes and queries."""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Iterable
from itertools import islice
from typing import Annotated

from pydantic import WithJsonSchema

from mavstream_protocol.explained import explained

NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
_NAME = re.compile(NAME_PATTERN.strip("^$"))
_QUERY_ID = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63})-[a-z2-7]{6}")
_CONSIDERED = 1000
_COMPARED = 8


def read_name(value: object) -> str:
    """Return the value if it is a valid name; otherwise raise ValueError with the rules for names."""
    if not isinstance(value, str):
        raise ValueError(f"name must be text, got a value of type {type(value).__name__}")
    # fullmatch, because `$` also matches before a final line feed.
    if _NAME.fullmatch(value):
        return value
    shown = f"'{value}'" if len(value) <= 64 else f"'{value[:64]}...'"
    if len(value) > 64:
        raise ValueError(f"name {shown} has {len(value)} characters: use at most 64")
    advice = "use letters a-z, digits and _, and no digit in front"
    if (better := re.sub(r"[^A-Za-z0-9_]+", "_", value).strip("_")) and _NAME.fullmatch(better):
        advice += f", such as '{better}'"
    if looks := _QUERY_ID.fullmatch(value):
        advice += f"; if this is the id of a query, its name is '{looks[1]}'"
    raise ValueError(f"name {shown} is not an identifier: {advice}")


def closest(name: str, known: Iterable[str], most: int) -> list[str]:
    """Return the known names that resemble a name, best first, to suggest them in an error message.

    Comparing two names takes up to 0.2 ms, so that only the names that share most letters are compared; of
    very many names, not all are considered.
    """
    letters = set(name)
    known = islice(known, _CONSIDERED)
    shared = heapq.nlargest(
        _COMPARED, known, key=lambda other: 2 * len(letters & set(other)) - len(set(other))
    )
    return difflib.get_close_matches(name, shared, n=most)


Name = Annotated[
    str,
    explained("name", read_name),
    WithJsonSchema({"type": "string", "pattern": NAME_PATTERN, "examples": ["readings"]}),
]
"""An identifier of at most 64 characters, usable in expressions without quotes."""
