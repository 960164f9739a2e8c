"""The operators of a plan as texts, as a form shows them, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mavstream_protocol import Plan

Texts = dict[str, str]
"""The fields of an operator by name, as they are typed."""

_WINDOW = ("window", "size", "hop")
FIELDS: dict[str, tuple[str, ...]] = {
    "source": ("stream",),
    "table": ("table",),
    "select": ("input", "where"),
    "project": ("input", "compute"),
    "aggregate": ("input", "by", *_WINDOW, "compute"),
    "distinct": ("input", *_WINDOW),
    "join": ("left", "right", "on", "within", *_WINDOW, "where", "compute", "how", "order"),
    "union": ("inputs", "order"),
    "except": ("left", "right", *_WINDOW),
    "split": ("input", "outputs"),
}
"""The fields of each operator in a form. What has no field is in `more`, as JSON."""

INPUTS = ("input", "left", "right", "inputs")
"""The fields that name other operators."""
MORE = "more"
_QUERY = "query:"


@dataclass(slots=True)
class Operator:
    """An operator whose fields are texts."""

    op: str
    texts: Texts = field(default_factory=dict)

    def reads(self) -> list[tuple[str, str]]:
        """Return its inputs, each with the field that names it."""
        return [(name, each) for name in INPUTS for each in _listed(self.texts.get(name, ""))]

    def outputs(self) -> list[str]:
        """Return the names of its outputs if it has several."""
        return [*_named(self.texts["outputs"]), "else"] if self.op == "split" else []

    def node(self) -> dict[str, Any]:
        """Return the node of a plan; raises ValueError if a text cannot be read."""
        given = {name: text.strip() for name, text in self.texts.items() if text.strip()}
        window = _window(given)
        made: dict[str, Any] = {"op": self.op}
        for name, text in given.items():
            if name == "stream" and text.startswith(_QUERY):
                made["query"] = text.removeprefix(_QUERY)
            elif name == "window":
                made["window"] = window
            elif name not in ("size", "hop", MORE):
                made[name] = _READ.get(name, str)(text)
        return made | _more(given.get(MORE, ""))


Operators = dict[str, Operator]
"""Operators by name."""


def new_operator(op: str, **texts: str) -> Operator:
    """Return an operator with empty fields, except those that are given."""
    made = dict.fromkeys(FIELDS[op], "")
    if op in ("aggregate", "distinct", "except"):
        made |= {"window": "tumbling", "size": "1s"}
    return Operator(op, made | texts)


def operators_of(plan: Plan) -> Operators:
    """Return the operators of a plan, inputs first."""
    found: Operators = {}

    def visit(name: str) -> None:
        if name in found or name not in plan.nodes:
            return
        node = plan.nodes[name]
        for below in node.reads().values():
            visit(below.partition(".")[0])
        found[name] = _operator(
            node.model_dump(mode="json", exclude_none=True, exclude_defaults=True, by_alias=True)
            | {"op": node.op}
        )

    visit(plan.root.partition(".")[0])
    return found


def _operator(given: dict[str, Any]) -> Operator:
    op = given.pop("op")
    made = new_operator(op, window="", size="") if "window" in FIELDS[op] else new_operator(op)
    rest = {}
    for name, value in given.items():
        shown = _SHOWN.get(name, _plain)(value)
        if op == "source" and name == "query":
            shown = {"stream": f"{_QUERY}{value}"}
        elif isinstance(shown, str):
            shown = {name: shown}
        if shown is None or not set(shown) <= set(made.texts):
            rest[name] = value
        else:
            made.texts |= shown
    if rest:
        made.texts[MORE] = json.dumps(rest)
    return made


def _more(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        made = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the other properties are not JSON ({error})") from None
    if not isinstance(made, dict):
        raise ValueError(f"the other properties are a JSON object, got {text[:40]}")
    return made


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _pairs(text: str) -> list[list[str]]:
    pairs = [[side.strip() for side in part.partition("=")[::2]] for part in _listed(text)]
    return [[left, right or left] for left, right in pairs]


def _named(text: str) -> dict[str, str]:
    """Read lines `name = expression`; an expression alone is a column of that name."""
    made = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, separator, expression = line.partition("=")
        if not separator or not name.strip().isidentifier():
            name, expression = line, line
        made[name.strip()] = expression.strip()
    return made


def _extent(text: str) -> int | str:
    rows = text.removesuffix("rows").strip()
    return int(rows) if rows.isdigit() else text


def _window(given: Mapping[str, str]) -> dict[str, Any]:
    kind, size = given.get("window", ""), _extent(given.get("size", ""))
    if kind == "session":
        return {"kind": kind, "gap": size}
    hop = {"hop": _extent(given["hop"])} if kind == "hopping" and "hop" in given else {}
    return {"kind": kind, "size": size, **hop}


_READ: dict[str, Callable[[str], Any]] = {
    "by": _listed,
    "inputs": _listed,
    "on": _pairs,
    "compute": _named,
    "outputs": _named,
}


def _plain(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _lines(value: dict[str, str]) -> str:
    lines = (name if name == text else f"{name} = {text}" for name, text in value.items())
    return "\n".join(lines)


def _window_texts(value: dict[str, Any]) -> Texts | None:
    if not set(value) <= {"kind", "size", "hop", "gap"}:
        return None
    size, hop = value.get("size", value.get("gap")), value.get("hop", "")
    return {"window": value["kind"], "size": str(size), "hop": str(hop)}


_SHOWN: dict[str, Callable[[Any], str | Texts | None]] = {
    "by": ", ".join,
    "inputs": ", ".join,
    "on": lambda pairs: ", ".join(left if left == right else f"{left} = {right}" for left, right in pairs),
    "compute": _lines,
    "outputs": _lines,
    "within": lambda value: value["before"] if value["before"] == value["after"] else None,
    "window": _window_texts,
}
