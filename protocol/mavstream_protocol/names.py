"""Names of streams, fields, classes and queries."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import WithJsonSchema

from mavstream_protocol.explained import explained

NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"


def read_name(value: object) -> str:
    """Return the value if it is a valid name; otherwise raise ValueError with the rules for names."""
    if not isinstance(value, str):
        raise ValueError(f"name must be text, got a value of type {type(value).__name__}")
    shown = f"'{value}'" if len(value) <= 64 else f"'{value[:64]}...'"
    if len(value) > 64:
        raise ValueError(f"name {shown} has {len(value)} characters: use at most 64")
    # fullmatch, because `$` also matches before a final line feed.
    if not re.fullmatch(NAME_PATTERN.strip("^$"), value):
        raise ValueError(
            f"name {shown} is not an identifier: use letters a-z, digits and _, and no digit in front"
        )
    return value


Name = Annotated[
    str,
    explained("name", read_name),
    WithJsonSchema({"type": "string", "pattern": NAME_PATTERN, "examples": ["readings"]}),
]
"""An identifier of at most 64 characters, usable in expressions without quotes."""
