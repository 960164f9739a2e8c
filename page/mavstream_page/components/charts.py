"""Charts over time as SVG, drawn here: lines that differ in colour and in dash pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mavstream_page.components import numbers
from mavstream_page.components.html import Markup, h, join
from mavstream_page.data.history import KEPT_S, History

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 600.0, 58.0, 8.0, 10.0, 20.0
_POINTS = 120
_SHORTEST_S = 60.0
"""The least time that a chart shows."""
DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4", "10 4")


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a chart."""

    name: str
    history: History
    style: int
    """Its colour and dash pattern, from 0."""


def line_chart(
    title: str,
    series: Sequence[Series],
    unit: Callable[[float | None], str],
    target: float | None = None,
    height: int = 170,
) -> Markup:
    """Return a chart of the last minutes with a legend of current values; `target` is a dashed limit."""
    kept = [(one, _thinned(one.history)) for one in series]
    values = [value for _, points in kept for _, value in points if value is not None]
    top = _round_up(max([*values, *([target] if target is not None else [])], default=0.0) or 1.0)
    now = max((points[-1][0] for _, points in kept if points), default=0.0)
    bottom = height - _BOTTOM
    oldest = min((points[0][0] for _, points in kept if points), default=now)
    span = min(KEPT_S, max(_SHORTEST_S, now - oldest))

    def x(at: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (1 - (now - at) / span)

    def y(value: float) -> float:
        return bottom - (bottom - _TOP) * min(1.0, value / top)

    marks = [_grid(y(top * part), unit(top * part)) for part in (0.0, 0.5, 1.0)]
    marks += [
        h("text", label, x=f"{x(now - back):.0f}", y=height - 4, class_="axis", text_anchor=anchor)
        for back, label, anchor in (
            (span, f"{numbers.duration(span)} ago", "start"),
            (0, "now", "end"),
        )
    ]
    if target is not None:
        marks.append(
            h(
                "line",
                x1=_LEFT,
                x2=_WIDTH - _RIGHT,
                y1=f"{y(target):.1f}",
                y2=f"{y(target):.1f}",
                class_="target",
            )
        )
        marks.append(
            h(
                "text",
                f"target {unit(target)}",
                x=_WIDTH - _RIGHT,
                y=f"{y(target) - 3:.1f}",
                class_="axis",
                text_anchor="end",
            )
        )
    lines = [_line(one, points, x, y) for one, points in kept]
    said = ", ".join(f"{one.name} {unit(one.history.last)}" for one in series)
    picture = h(
        "svg",
        marks,
        lines,
        viewBox=f"0 0 {_WIDTH:.0f} {height}",
        role="img",
        aria_label=f"{title} over the last five minutes; now {said}",
        class_="chart",
        preserveAspectRatio="none",
    )
    legend = [
        h("span", _swatch(one.style), h("span", one.name, class_="name"), h("b", unit(one.history.last)))
        for one in series
    ]
    return h(
        "figure",
        h("figcaption", h("span", title, class_="title"), h("span", legend, class_="legend")),
        picture,
        class_="chart-box",
    )


def sparkline(history: History, style: int = 0, title: str = "") -> Markup:
    """Return a small line without axes."""
    points = _thinned(history, 40)
    values = [value for _, value in points if value is not None]
    top, now = max(values, default=0.0) or 1.0, points[-1][0] if points else 0.0
    span = min(KEPT_S, max(_SHORTEST_S, now - points[0][0])) if points else KEPT_S
    path = _path(points, lambda at: 80 * (1 - (now - at) / span), lambda value: 21 - 19 * value / top)
    return h(
        "svg",
        h("path", d=path, class_=f"line s{style}"),
        viewBox="0 0 80 22",
        class_="spark",
        role="img",
        aria_label=title or "course over five minutes",
    )


def bar(share: float | None, label: str, style: int = 0) -> Markup:
    """Return a horizontal bar for a share from 0 to 1, with its value as text."""
    width = f"{max(0.0, min(1.0, share or 0.0)) * 100:.1f}%"
    return h(
        "span",
        h("span", class_=f"fill f{style}", style=f"width:{width}"),
        h("span", label, class_="label"),
        class_="bar",
    )


def _swatch(style: int) -> Markup:
    line = h(
        "line", x1=0, x2=22, y1=5, y2=5, class_=f"line s{style}", stroke_dasharray=DASHES[style % 6] or None
    )
    return h("svg", line, viewBox="0 0 22 10", class_="swatch", aria_hidden="true")


def _grid(y: float, label: str) -> Markup:
    return join(
        h("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"),
        h("text", label, x=_LEFT - 6, y=f"{y + 3:.1f}", class_="axis", text_anchor="end"),
    )


def _line(
    one: Series,
    points: Sequence[tuple[float, float | None]],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> Markup:
    return h(
        "path",
        d=_path(points, x, y),
        class_=f"line s{one.style % 6}",
        stroke_dasharray=DASHES[one.style % 6] or None,
        vector_effect="non-scaling-stroke",
    )


def _path(
    points: Sequence[tuple[float, float | None]], x: Callable[[float], float], y: Callable[[float], float]
) -> str:
    parts, drawing = [], False
    for at, value in points:
        if value is None:
            drawing = False
            continue
        parts.append(f"{'L' if drawing else 'M'}{x(at):.0f} {y(value):.1f}")
        drawing = True
    return "".join(parts)


def _thinned(history: History, most: int = _POINTS) -> list[tuple[float, float | None]]:
    """Return at most so many points: of each interval the highest, so that peaks stay visible."""
    points = list(history.points)
    if len(points) <= most:
        return points
    width = KEPT_S / most
    kept: dict[int, tuple[float, float | None]] = {}
    for at, value in points:
        place = int(at / width)
        before = kept.get(place)
        if before is None or before[1] is None or (value is not None and value > before[1]):
            kept[place] = (at, value)
    kept[int(points[-1][0] / width)] = points[-1]
    return list(kept.values())


def _round_up(value: float) -> float:
    size = 1.0
    while size < value:
        size *= 10
    while size / 10 >= value:
        size /= 10
    return next(part * size for part in (0.1, 0.2, 0.4, 0.5, 0.8, 1.0) if part * size >= value * 0.999)
