"""Completion of names in SQL that is being typed."""

from __future__ import annotations

import re

from mavstream_protocol.sql import Catalog

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
_KEY_WORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "JOIN", "ON", "AS", "AND", "OR", "NOT", "BETWEEN"),
    *("WITH", "TUMBLE(TABLE ", "HOP(TABLE ", "DESCRIPTOR(", "INTERVAL", "UNION ALL", "DISTINCT"),
)
_FUNCTIONS = ("count(*)", "sum(", "avg(", "min(", "max(", "stddev(", "first(", "last(", "median(")
_MOST = 8


def suggestions(text: str, caret: int, catalog: Catalog) -> list[str]:
    """Return what the word at the caret may become: columns of the streams in the text first."""
    found = _WORD.search(text[:caret])
    if found is None:
        return _after_key_word(text[:caret], catalog)
    word = found[0].lower()
    named = [name for name in (*catalog.streams, *catalog.tables) if re.search(rf"\b{name}\b", text)]
    known: dict[str, None] = {}
    for name in named:
        schema = catalog.streams[name].schema if name in catalog.streams else catalog.tables[name]
        known |= dict.fromkeys(field.name for field in schema)
    known |= dict.fromkeys((*catalog.streams, *catalog.tables, *_FUNCTIONS, *_KEY_WORDS))
    return [each for each in known if each.lower().startswith(word) and each.lower() != word][:_MOST]


def completed(text: str, caret: int, chosen: str) -> tuple[str, int]:
    """Return the text with the word at the caret completed, and the new place of the caret."""
    found = _WORD.search(text[:caret])
    start = caret if found is None else found.start()
    space = "" if chosen.endswith(("(", " ", ")")) else " "
    return f"{text[:start]}{chosen}{space}{text[caret:].lstrip()}", start + len(chosen) + len(space)


def _after_key_word(before: str, catalog: Catalog) -> list[str]:
    if not before.strip():
        return ["SELECT"]
    if re.search(r"\b(from|join|table)\s+$", before, re.IGNORECASE):
        return [*catalog.streams, *catalog.tables][:_MOST]
    return []
