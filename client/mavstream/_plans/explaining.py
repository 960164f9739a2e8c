"""Plans as text and HTML for people: a tree with the root on top."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from mavstream_protocol import Plan

_INPUTS = ("input", "left", "right", "inputs")
_LONGEST = 100


def explain(plan: Plan) -> str:
    """Return the operators of a plan as an indented tree; each is below the one that reads it."""
    document = plan.model_dump(mode="json", exclude_none=True)
    return "\n".join(_lines(str(document["root"]), document["nodes"], 0, set()))


def as_html(text: str) -> str:
    """Return text as HTML for notebooks."""
    return f"<pre>{escape(text)}</pre>"


def _lines(reference: str, nodes: dict[str, Any], depth: int, shown: set[str]) -> Iterator[str]:
    name, _, output = reference.partition(".")
    node = nodes[name]
    label = f"{name}.{output}" if output else name
    again = name in shown
    shown.add(name)
    yield "  " * depth + f"{label}: {_said(node)}" + (" (as above)" if again else "")
    if not again:
        for below in _inputs(node):
            yield from _lines(below, nodes, depth + 1, shown)


def _inputs(node: dict[str, Any]) -> Iterator[str]:
    for key in _INPUTS:
        value = node.get(key)
        if value is not None:
            yield from map(_reference, value if isinstance(value, list) else [value])


def _reference(value: Any) -> str:
    return value if isinstance(value, str) else ".".join(filter(None, map(str, value.values())))


def _said(node: dict[str, Any]) -> str:
    parts = [f"{key} {_short(value)}" for key, value in node.items() if key not in ("op", *_INPUTS) and value]
    text = " ".join([node["op"], ", ".join(parts)]).strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_short(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_short, value)) + "]"
    return str(value)
