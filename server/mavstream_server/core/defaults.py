"""Defaults of the flags of `mavstream serve` for `--help`, which are those of the settings."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticUndefined

from mavstream_protocol.quantities import format_duration, format_size
from mavstream_server.core.settings import Settings

_SIZES = ("_bytes", "_memory")
_DURATIONS = ("_timeout", "_expiry", "_time", "_step", "_interval")


def default_text(name: str) -> str | None:
    """Return the default of a setting as it is written on the command line; None if there is none."""
    field = Settings.model_fields.get(name)
    value: Any = None if field is None or field.default is PydanticUndefined else field.default
    if value is None or value == () or value == {}:
        return None
    if name.endswith(_SIZES):
        return format_size(value)
    if name.endswith(_DURATIONS):
        return format_duration(value)
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
