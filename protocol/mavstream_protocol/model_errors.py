"""Errors that pydantic found, in the words of the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_OBJECT = "must be an object"
_LIST = "must be a list"
_TEXT = "must be text"
_WHOLE = "must be a whole number"
_NUMBER = "must be a number"
_BOOL = "must be true or false"

_PHRASES = {
    "missing": "is required",
    "extra_forbidden": "is not known here: leave it out",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type", "mapping_type"), _OBJECT),
    **dict.fromkeys(("dataclass_type", "dataclass_exact_type"), _OBJECT),
    **dict.fromkeys(("tuple_type", "list_type", "set_type", "frozen_set_type", "iterable_type"), _LIST),
    **dict.fromkeys(("string_type", "string_unicode"), _TEXT),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), _WHOLE),
    **dict.fromkeys(("float_type", "float_parsing", "decimal_parsing"), _NUMBER),
    **dict.fromkeys(("bool_type", "bool_parsing"), _BOOL),
    "finite_number": "must be a finite number",
    "none_required": "must be null",
}
_SIZES = {"too_short": ("at least", "min_length"), "too_long": ("at most", "max_length")}
_SHOWN = 60


def causes(errors: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the errors without those that follow from others.

    Pydantic counts the valid items of a list, so that a list with a wrong item is also too short.
    """
    places = [tuple(error["loc"]) for error in errors]

    def follows(place: tuple[Any, ...]) -> bool:
        return any(len(other) > len(place) and other[: len(place)] == place for other in places)

    return [error for error in errors if error["type"] not in _SIZES or not follows(tuple(error["loc"]))]


def sentence(error: Mapping[str, Any], subject: str, *, shown: bool = True) -> str:
    """Return an error as a sentence about its subject; without `shown` it does not quote the value.

    The messages of own validators are whole sentences, which stay as they are.
    """
    kind, message = error["type"], str(error["msg"])
    if "reason" in error.get("ctx", {}):
        return message
    if kind in ("value_error", "assertion_error"):
        return message.split(", ", 1)[1]
    said = f"{subject}{_phrase(kind, message, error.get('ctx', {}))}"
    if not shown or kind in ("missing", "extra_forbidden"):
        return said
    return f"{said}, got {_got(error.get('input'))}"


def quoted(error: Mapping[str, Any], otherwise: str) -> str:
    """Return the name of what an error is about, in quotes, or `otherwise` for the whole object."""
    return f"'{error['loc'][-1]}'" if error["loc"] else otherwise


def _phrase(kind: str, message: str, context: Mapping[str, Any]) -> str:
    if kind in _PHRASES:
        return f" {_PHRASES[kind]}"
    if kind in _SIZES:
        bound, key = _SIZES[kind]
        return f" must have {bound} {context[key]} item{'' if context[key] == 1 else 's'}"
    for prefix in ("Input should", "String should", "Value should"):
        if message.startswith(prefix):
            return f" must{message.removeprefix(prefix)}"
    return f": {message[:1].lower()}{message[1:]}"


def _got(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
