"""Markup as text: elements are functions, and everything that is not markup is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"br", "hr", "img", "input"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]
Attribute = str | int | float | bool | None


def h(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element; `class_` and `data_action` stand for `class` and `data-action`.

    Attributes that are None or False are left out. Children that are not Markup are escaped.
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{''.join(_text(child) for child in children)}</{tag}>")


def join(*children: Child) -> Markup:
    """Return several children as one piece of markup."""
    return Markup("".join(_text(child) for child in children))


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    written = name.rstrip("_").replace("_", "-")
    return f" {written}" if value is True else f' {written}="{escape(str(value))}"'


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str | int | float):
        return escape(str(child))
    return "".join(_text(each) for each in child)
