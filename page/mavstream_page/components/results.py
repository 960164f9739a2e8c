"""Result rows as a table, and as a chart where there is a number over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mavstream_page.components import numbers
from mavstream_page.components.html import Markup, h
from mavstream_page.components.marks import table
from mavstream_protocol.streams import FieldSpec

_WIDTH, _HEIGHT, _PAD = 600, 120, 8


def result_table(
    rows: Sequence[Mapping[str, Any]], fields: Sequence[FieldSpec], caption: str, most: int = 12
) -> Markup:
    """Return the newest rows, the newest first."""
    numeric = {field.name for field in fields if field.type.value in ("int", "float")}
    made = [
        h(
            "tr",
            [
                h("td", _cell(row.get(field.name)), class_="number" if field.name in numeric else None)
                for field in fields
            ],
        )
        for row in list(reversed(rows))[:most]
    ]
    return table(
        [f"#{field.name}" if field.name in numeric else field.name for field in fields], made, caption, "rows"
    )


def result_chart(rows: Sequence[Mapping[str, Any]], fields: Sequence[FieldSpec]) -> Markup | None:
    """Return points of the first number over the first time; None where there is no such pair."""
    time = next((field.name for field in fields if field.type.value == "timestamp"), None)
    number = next((field.name for field in fields if field.type.value == "float"), None) or next(
        (field.name for field in fields if field.type.value == "int"), None
    )
    if time is None or number is None:
        return None
    points = [
        (datetime.fromisoformat(row[time]).timestamp(), float(row[number]))
        for row in rows
        if row.get(time) is not None and row.get(number) is not None
    ]
    if len(points) < 2:
        return None
    low_x, high_x = min(at for at, _ in points), max(at for at, _ in points)
    low_y, high_y = min(value for _, value in points), max(value for _, value in points)

    def x(at: float) -> float:
        return _PAD + (_WIDTH - 2 * _PAD) * (at - low_x) / ((high_x - low_x) or 1)

    def y(value: float) -> float:
        return _HEIGHT - _PAD - (_HEIGHT - 2 * _PAD) * (value - low_y) / ((high_y - low_y) or 1)

    dots = [
        h("circle", cx=f"{x(at):.1f}", cy=f"{y(value):.1f}", r=3, class_="f0-dot") for at, value in points
    ]
    picture = h(
        "svg",
        dots,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="chart points",
        role="img",
        aria_label=f"{number} over {time}, from {numbers.count(low_y)} to {numbers.count(high_y)}",
    )
    legend = h("span", f"{numbers.count(low_y)} to {numbers.count(high_y)}", class_="legend")
    return h(
        "figure",
        h("figcaption", h("span", f"{number} over {time}", class_="title"), legend),
        picture,
        class_="chart-box",
    )


def _cell(value: Any) -> Any:
    if value is None:
        return h("span", "null", class_="soft")
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
