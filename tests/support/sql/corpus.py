"""The corpus of SQL statements: files of statements, each with the expected plan, specification or error.

A case is a title behind `#`, the statement, a line `----`, and what is expected. A plan is shown with one
line per node; the root is marked with `*`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.plans.plan import InputRef, Plan
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.sql import Catalog, Statement, parse_statement
from mavstream_protocol.typed_plan import StreamShape

FOLDER = Path(__file__).parents[2] / "sql" / "corpus"
RULE = "----"


def _schema(text: str) -> Schema:
    """Read fields such as `at timestamp, room string null`."""
    parts = [part.split() for part in text.split(", ")]
    return Schema(tuple(Field(name, FieldType(type_), bool(null)) for name, type_, *null in parts))


CATALOG = Catalog(
    {
        "readings": StreamShape(
            _schema("at timestamp, home int, room string, temperature float, battery float null"), "at"
        ),
        "motion": StreamShape(_schema("at timestamp, home int, room string, level float"), "at"),
        "doors": StreamShape(_schema("seen timestamp, home int, door string, open bool"), "seen"),
        "events": StreamShape(_schema("kind string, value int null, text string null")),
    },
    {"rooms": _schema("room string, floor int, max_temperature float null")},
)
"""What the statements of the corpus can name: `events` has no event time, `rooms` is a stored table."""


@dataclass(frozen=True, slots=True)
class CorpusCase:
    """A statement and what is expected of it."""

    topic: str
    title: str
    sql: str
    expected: str


def corpus() -> Iterator[CorpusCase]:
    """Yield all cases."""
    for path in sorted(FOLDER.glob("*.txt")):
        for block in path.read_text().split("\n# ")[1:]:
            title, _, rest = block.partition("\n")
            sql, _, expected = rest.partition(f"\n{RULE}\n")
            yield CorpusCase(path.stem, title, sql, expected.strip())


def outcome(sql: str) -> str:
    """Return what a statement of the corpus gives, as its files show it."""
    try:
        return _shown(parse_statement(sql, CATALOG))
    except InvalidSql as error:
        return f"error {error.line}:{error.column} {error.reason} at {error.found!r}\n{error.detail}"


def _shown(statement: Statement) -> str:
    values: dict[str, Any] = {key: getattr(statement, key) for key in statement.__dataclass_fields__}
    plan = values.pop("plan", None)
    shown = {key: _plain(value) for key, value in values.items()}
    if "spec" in values and hasattr(values["spec"], "plan"):
        plan = values["spec"].plan
        del shown["spec"]["plan"]
    head = [f"{type(statement).__name__} {json.dumps(shown, ensure_ascii=False)}"] if shown else []
    if plan is None:
        return head[0]
    name = [] if head else ["EXPLAIN"] * (type(statement).__name__ == "Explain")
    return "\n".join([*head, *name, *_plan_lines(plan)])


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _plan_lines(plan: Plan) -> Iterator[str]:
    root = InputRef.parse(plan.root)
    for name, node in plan.nodes.items():
        data = node.model_dump(mode="json", exclude_defaults=True)
        operator = data.pop("op")
        parts = " ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in data.items())
        mark = "*" if name == root.node else ""
        output = f" -> {root.output}" if mark and root.output else ""
        yield f"{name}{mark}: {operator} {parts}{output}"
