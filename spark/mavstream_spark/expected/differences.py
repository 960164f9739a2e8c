"""Comparisons of results with expected answers, as people and programs read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

from mavstream_protocol.instants import format_instant
from mavstream_protocol.schema import FieldType
from mavstream_spark.expected.comparison import Comparison, Row


def summary(found: Comparison) -> tuple[object, ...]:
    """Return the counts of a comparison, for a line of a table."""
    return found.name, found.expected, found.found, len(found.missing), len(found.unexpected)


def lines_of(found: Comparison, most: int) -> Iterator[str]:
    """Yield the rows that differ, `most` at most: `-` is missing, `+` is unexpected."""
    if found.same:
        return
    yield f"{found.name}: - is expected and missing, + was found and is not expected"
    marked = [("-", row) for row in found.missing] + [("+", row) for row in found.unexpected]
    # Rows that differ in one value stand beside each other.
    marked.sort(key=lambda one: [(value is not None, str(value)) for value in one[1]])
    for sign, row in islice(marked, most):
        yield f"  {sign} {json.dumps(_readable(found, row))}"
    if len(marked) > most:
        yield f"  and {len(marked) - most:,} more"


def as_json(found: Comparison, most: int) -> dict[str, object]:
    """Return a comparison as JSON, with at most `most` rows of each kind."""

    def shown(rows: Iterable[Row]) -> list[dict[str, object]]:
        return [_readable(found, row) for row in islice(rows, most)]

    return {
        "answers": found.name,
        "same": found.same,
        "expected": found.expected,
        "found": found.found,
        "missing": len(found.missing),
        "unexpected": len(found.unexpected),
        "missing_rows": shown(found.missing),
        "unexpected_rows": shown(found.unexpected),
    }


def _readable(found: Comparison, row: Row) -> dict[str, object]:
    return {
        field.name: format_instant(value)
        if field.type is FieldType.TIMESTAMP and value is not None
        else value
        for field, value in zip(found.fields, row, strict=True)
    }
