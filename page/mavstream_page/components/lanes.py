"""A trace of the scheduler as a timeline: one lane per class, a bar for each slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mavstream_page.components import numbers
from mavstream_page.components.html import Markup, h
from mavstream_protocol.scheduling import SchedulerTrace, TracedSlice

_WIDTH, _HEIGHT = 1000.0, 26
_PIXELS = 500
"""Bars that would fall onto the same pixel are drawn as one."""


def timeline(trace: SchedulerTrace, classes: Sequence[str]) -> Markup:
    """Return the lanes, in the order of the classes."""
    total_ms = trace.seconds * 1000
    by_class: dict[str, list[TracedSlice]] = {}
    for one in trace.slices:
        by_class.setdefault(one.class_, []).append(one)
    names = [name for name in classes if name in by_class]
    names += [name for name in by_class if name not in names]
    busy = Counter({name: sum(one.took_ms for one in slices) for name, slices in by_class.items()})
    lanes = [
        h(
            "div",
            h("b", name),
            _lane(by_class[name], total_ms, classes.index(name) if name in classes else 5, name),
            h("span", numbers.percent(busy[name] / total_ms), class_="number"),
            class_="lane",
        )
        for name in names
    ]
    scale = h(
        "div",
        h("span"),
        h(
            "span",
            h("span", "0 ms"),
            h("span", numbers.milliseconds(total_ms / 2)),
            h("span", numbers.milliseconds(total_ms)),
            class_="scale",
        ),
        h("span", "share", class_="number"),
        class_="lane soft",
    )
    return h("div", lanes, scale, class_="lanes", id="lanes")


def _lane(slices: Sequence[TracedSlice], total_ms: float, style: int, name: str) -> Markup:
    bars = []
    for begin, end, rows, queries in _merged(slices, total_ms / _PIXELS):
        took, at = numbers.milliseconds(end - begin), numbers.milliseconds(begin)
        title = f"{took} from {at}, {rows} tuples: {queries}"
        bars.append(
            h(
                "rect",
                h("title", title),
                x=f"{begin / total_ms * _WIDTH:.1f}",
                y=3,
                height=_HEIGHT - 6,
                width=f"{max(1.0, (end - begin) / total_ms * _WIDTH):.1f}",
                class_=f"slice f{style % 6}-fill",
            )
        )
    return h(
        "svg",
        bars,
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{len(slices)} slices of class {name}",
    )


def _merged(slices: Sequence[TracedSlice], least_ms: float) -> list[tuple[float, float, int, str]]:
    """Return bars, of which neighbours closer than a pixel are one: begin, end, tuples and a query."""
    merged: list[tuple[float, float, int, str]] = []
    for one in slices:
        end = one.at_ms + one.took_ms
        if merged and one.at_ms - merged[-1][1] < least_ms:
            begin, _, rows, query = merged[-1]
            both = query if query == one.query else "several queries"
            merged[-1] = (begin, end, rows + one.consumed, both)
        else:
            merged.append((one.at_ms, end, one.consumed, one.query))
    return merged
