"""Models whose JSON schemas have the docstrings of their fields as descriptions."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Described(BaseModel):
    """A model whose fields are described in its JSON schema by their docstrings.

    The source is read when a schema is asked for. pydantic's `use_attribute_docstrings` reads it when the
    class is made, which takes a sixth of the time that a server needs to start.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the docstrings of fields that have no description."""
        schema = handler(core)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        texts: dict[str, str] = {}
        for part in reversed(cls.__mro__):
            texts |= _docstrings(part.__module__).get(part.__qualname__, {})
        for name, field in cls.model_fields.items():
            shown = properties.get(field.serialization_alias or field.alias or name)
            if name in texts and shown is not None and field.description is None:
                shown["description"] = texts[name]
        return schema


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of annotated attributes, by class, of a module of this product."""
    if not module.startswith("mavstream"):
        return {}
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}  # Installed without sources.
    return {node.name: _of_class(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _of_class(node: ast.ClassDef) -> dict[str, str]:
    texts: dict[str, str] = {}
    for statement, following in pairwise(node.body):
        text = _text(following)
        if (
            text is not None
            and isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
        ):
            texts[statement.target.id] = inspect.cleandoc(text)
    return texts


def _text(statement: ast.stmt) -> str | None:
    value: Any = statement.value if isinstance(statement, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
