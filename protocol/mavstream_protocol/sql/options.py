"""Options in `WITH (key = 'value', ...)`: read, checked, and sorted into the fields of a specification."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.model_errors import causes, sentence
from mavstream_protocol.names import closest
from mavstream_protocol.sql.cursor import Cursor
from mavstream_protocol.sql.tokens import NUMBER, QUOTED, WORD

Model = TypeVar("Model", bound=BaseModel)
Span = tuple[int, int]
Path = tuple[str, ...]

STREAM_OPTIONS: Mapping[str, Path] = {
    "retention": ("retention", "time"),
    "retention_bytes": ("retention", "bytes"),
    "max_ahead": ("max_ahead",),
    "idle_timeout": ("idle_timeout",),
    "quota": ("quota",),
}
"""Options of a stream, with the fields of its specification."""
QUERY_OPTIONS: Mapping[str, Path] = {
    "class": ("class",),
    "mode": ("mode",),
    "start_at": ("start_at",),
    "stop_at": ("stop_at",),
    "from": ("from",),
    "on_error": ("on_error",),
    "memory_limit": ("memory_limit",),
    "backend": ("backend",),
    "latency_mean": ("qos", "latency", "mean"),
    "latency_tolerance": ("qos", "latency", "tolerance"),
    "memory": ("qos", "memory", "at_most"),
    "memory_tolerance": ("qos", "memory", "tolerance"),
    "throughput": ("qos", "throughput", "at_least"),
    "throughput_tolerance": ("qos", "throughput", "tolerance"),
    "max_loss": ("qos", "max_loss"),
    "weight_latency": ("qos", "weights", "latency"),
    "weight_memory": ("qos", "weights", "memory"),
    "weight_throughput": ("qos", "weights", "throughput"),
}
"""Options of a query; also `latency_p95` for any percentile, and `worth_readings` for any stream."""
CLASS_OPTIONS: Mapping[str, Path] = {"latency": ("latency",), "description": ("description",)}
"""Options of a class."""
_PERCENTILE = re.compile(r"latency_(p[0-9]+)(?:_([0-9]+))?")


@dataclass(frozen=True, slots=True)
class Option:
    """An option: where it goes in the specification, its value and its place."""

    path: Path
    value: str | int | float | bool
    span: Span


def read_options(cursor: Cursor, known: Mapping[str, Path]) -> list[Option]:
    """Read `WITH (key = value, ...)` if it is there; raises InvalidSql."""
    if not cursor.accept("with"):
        return []
    cursor.expect_sign("(")
    options = [_option(cursor, known)]
    while cursor.accept_sign(","):
        options.append(_option(cursor, known))
    cursor.expect_sign(")")
    paths = [option.path for option in options]
    for number, option in enumerate(options):
        if option.path in paths[:number]:
            raise cursor.source.error(
                "duplicate_option", "this option is given twice; leave one out", *option.span
            )
    return options


def checked(
    model: type[Model], data: dict[str, Any], options: Iterable[Option], cursor: Cursor, start: int
) -> Model:
    """Return the specification; errors point at the option that is wrong. Raises InvalidSql."""
    options = list(options)
    for option in options:
        inner = data
        for key in option.path[:-1]:
            inner = inner.setdefault(key, {})
        inner[option.path[-1]] = option.value
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _invalid(error, options, cursor, start) from None


def _option(cursor: Cursor, known: Mapping[str, Path]) -> Option:
    token = cursor.token
    if token.kind not in (WORD, QUOTED):
        raise cursor.misplaced("the name of an option")
    cursor.take()
    path = _path(token.value.lower(), known)
    if path is None:
        close = closest(token.value.lower(), [*known, "latency_p95"], 1)
        listed = ", ".join(known)
        advice = f"did you mean `{close[0]}`?" if close else f"known are {listed}"
        raise cursor.source.error(
            "unknown_option", f"there is no option `{token.value}`; {advice}", token.start, token.end
        )
    cursor.expect_sign("=")
    return Option(path, _value(cursor), (token.start, cursor.last_end))


def _path(key: str, known: Mapping[str, Path]) -> Path | None:
    if key in known:
        return known[key]
    if known is QUERY_OPTIONS:
        percentile = _PERCENTILE.fullmatch(key)
        if percentile is not None:
            decimals = f".{percentile[2]}" if percentile[2] else ""
            return ("qos", "latency", percentile[1] + decimals)
        if key.startswith("worth_"):
            return ("qos", "worth", key.removeprefix("worth_"))
    return None


def _value(cursor: Cursor) -> str | int | float | bool:
    token = cursor.token
    if token.kind == NUMBER:
        cursor.take()
        return int(token.value) if token.value.isdecimal() else float(token.value)
    if token.word in ("true", "false"):
        return cursor.take().word == "true"
    return cursor.text("a text in quotes or a number").value


def _invalid(error: ValidationError, options: list[Option], cursor: Cursor, start: int) -> InvalidSql:
    """Return the error at the option that the model names, or at the statement."""
    details = causes(error.errors())[0]
    location = tuple(map(str, details["loc"]))
    shared = {option.span: _shared(option.path, location) for option in options}
    span = max(shared, key=lambda each: shared[each], default=(start, cursor.last_end))
    if not shared.get(span):
        span = (start, cursor.last_end)
    message = sentence(details, f"`{location[-1]}`" if location else "the statement")
    if shared.get(span) and not message.startswith("`"):
        name = cursor.source.text[slice(*span)].partition("=")[0].strip()
        if name.partition("_")[0].lower() not in message:
            message = f"`{name}`: {message}"
    return cursor.source.error(details["type"], message, *span)


def _shared(path: Path, location: Path) -> int:
    """Return how many fields two paths have in common."""
    same = [one == other for one, other in zip(path, location, strict=False)]
    return same.index(False) if False in same else len(same)
