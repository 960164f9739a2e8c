"""Plans and specifications from flows, models, dicts, or JSON and YAML files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import yaml
from pydantic import BaseModel

from mavstream._plans.builder import Flow
from mavstream_protocol import InvalidObject, Plan, ProblemItem, QuerySpec, StreamSpec

Document: TypeAlias = Mapping[str, Any] | str | os.PathLike[str]
"""An object as a dict, or the path of a JSON or YAML file with it."""
QueryLike: TypeAlias = Flow | Plan | QuerySpec | Document
StreamLike: TypeAlias = StreamSpec | Document
_SELECT = re.compile(r"\s*(?:select|with)\s", re.IGNORECASE)


class _Loader(yaml.SafeLoader):
    """A YAML loader that reads only `true` and `false` as booleans, and timestamps as text.

    In YAML 1.1 the key `on` of a join would be read as true, and a timestamp would lose its text form.
    """


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":timestamp"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the object in a JSON (`.json`) or YAML file. Raises InvalidObject."""
    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error)) from None
    return parse_document(content, str(file))


def parse_document(content: bytes, name: str) -> dict[str, Any]:
    """Return the object in a JSON text (if `name` ends in `.json`) or YAML text. Raises InvalidObject."""
    try:
        # _Loader is a safe loader with fewer implicit types.
        data = orjson.loads(content) if name.endswith(".json") else yaml.load(content, _Loader)
    except (orjson.JSONDecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise _unreadable(name, _position(error)) from None
    if not isinstance(data, dict):
        got = {str: "text", list: "a list", type(None): "nothing"}.get(type(data), f"{data!r:.60}")
        raise _unreadable(name, f"expected an object in YAML or JSON, such as 'name: readings', got {got}")
    return data


def _position(error: Exception) -> str:
    """Return what is wrong with a text, and where."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"it is no YAML: line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    kind = "JSON" if isinstance(error, orjson.JSONDecodeError) else "YAML"
    return f"it is no {kind}: {' '.join(str(error).split())}"


def stream_document(spec: StreamLike | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request for a stream; `given` overrides the specification."""
    return {**({} if spec is None else _as_dict(spec)), **given}


def query_or_sql(query: QueryLike | None, sql: str | None) -> QueryLike:
    """Return the query that was given in one of two ways; raises InvalidObject unless one was."""
    if (query is None) == (sql is None):
        got = "both" if sql is not None else "neither"
        detail = f"expected a query or sql=, got {got}"
        raise InvalidObject([ProblemItem(pointer="sql", code="query_or_sql", detail=detail)])
    return query if query is not None else {"sql": sql}


def query_document(query: QueryLike, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request for a query; a file gives it its name, others get one on the server."""
    data = validation_document(query, {})
    if "plan" not in data and "sql" not in data:
        data = {"plan": data}
    data |= {name.rstrip("_"): _plain(value) for name, value in given.items() if value is not None}
    if (name := _file_name(query)) is not None:
        data.setdefault("name", name)
    return data


def validation_document(query: QueryLike, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request for a validation; a plan is sent alone, so that error pointers fit it."""
    if any(value is not None for value in given.values()):
        return query_document(query, given)
    return query.build().model_dump(mode="json") if isinstance(query, Flow) else _as_dict(query)


def _file_name(query: QueryLike) -> str | None:
    """Return the name that a file gives to its query; None if there is no file, or its name cannot be one."""
    if not isinstance(query, str | os.PathLike):
        return None
    stem = re.sub(r"\W", "_", Path(query).stem, flags=re.ASCII)[:64]
    return stem if re.match(r"[A-Za-z_]", stem) else None


def _as_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str | os.PathLike):
        got = f"a value of type {type(value).__name__}"
        raise _wrong(f"expected a specification, a dict or the path of a file, got {got}")
    if isinstance(value, str) and _SELECT.match(value):
        raise _wrong("expected the path of a file, got an SQL query: give it as sql=")
    return read_document(value)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else value


def _wrong(detail: str) -> InvalidObject:
    return InvalidObject([ProblemItem(pointer="body", code="invalid_value", detail=detail)])


def _unreadable(name: object, reason: str) -> InvalidObject:
    detail = f"'{name}' cannot be read: {reason}"
    return InvalidObject([ProblemItem(pointer="file", code="unreadable_file", detail=detail)])
