"""Columns with their types."""

from __future__ import annotations

from mavstream_page.components.html import Markup, h
from mavstream_protocol.streams import FieldSpec


def fields_shown(fields: tuple[FieldSpec, ...], event_time: str | None) -> Markup:
    """Return the columns of a stream, a table or a node."""
    return h(
        "div",
        [
            h(
                "span",
                h("b", each.name),
                f" {each.type.value}{' or null' if each.nullable else ''}"
                f"{', event time' if each.name == event_time else ''}",
                class_="chip",
            )
            for each in fields
        ],
        class_="chips",
    )
