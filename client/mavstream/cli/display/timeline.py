"""Timelines: pictures of scheduler traces. Needs the extra `pictures`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mavstream_protocol.scheduling import SchedulerTrace, TracedSlice

# The colours of Okabe and Ito, which are hard to confuse; yellow is darkened, black is violet.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#b8a200", "#7a4fa3")
_OTHERS, _UNRECORDED, _PALE, _LINE = "#9a9a9a", "#f0f0f0", "#606060", "#d0d0d0"
_WIDTH, _ROW, _ENTRY = 12.0, 0.62, 0.22  # inches: of the picture, of a class, of a line in the legend
_TALLEST = 40.0
_DOTS = 120  # per inch
_ACROSS = 1200  # dots of the time axis, about
_BAR = 0.39  # half of a bar's height; a class has a height of 1
_LONGEST_NAME = 26
_AS_DOTS = 5_000
"""Number of bars above which they are rasterized in an SVG: browsers are slow with so many shapes."""


def draw(trace: SchedulerTrace, classes: Mapping[str, str], file: Path) -> None:
    """Write a PNG or SVG with a row of bars per class; `classes` has their captions, in order."""
    legend = _legend(trace, list(classes))
    height = max(1.5 + _ROW * len(classes), 0.8 + _ENTRY * len(legend))
    figure = Figure(figsize=(_WIDTH, min(_TALLEST, height)), dpi=_DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _prepare(axes, trace, classes)
    colours = {query: colour for query, colour in legend.items() if colour in _COLOURS}
    for row, name in enumerate(classes):
        axes.add_collection(_bars(trace, row, name, colours), autolim=False)
    if legend:
        known = [Patch(color=colour, label=_short(text)) for text, colour in legend.items()]
        figure.legend(
            handles=known, loc="outside right upper", frameon=False, title="Query", alignment="left"
        )
    figure.savefig(file, format=file.suffix[1:].lower())


def _legend(trace: SchedulerTrace, classes: list[str]) -> dict[str, str]:
    """Return the colours of queries: those that ran longest in each class, and one for all others."""
    busy: dict[str, dict[str, float]] = {name: defaultdict(float) for name in classes}
    for one in trace.slices:
        busy[one.class_][one.query] += one.took_ms
    ranked = [
        (rank, row, query)
        for row, name in enumerate(classes)
        for rank, query in enumerate(sorted(busy[name], key=lambda query: -busy[name][query]))
    ]
    # The first of every class comes before the second of any, so that no class is without colours.
    queries = dict.fromkeys(query for _, _, query in sorted(ranked))
    chosen = list(queries)[: len(_COLOURS)]
    legend = dict(zip((query for query in _by_class(ranked) if query in chosen), _COLOURS, strict=False))
    if others := len(queries) - len(chosen):
        legend[f"{others} more"] = _OTHERS
    if trace.left_out:
        legend[f"{trace.left_out:,} slices left out"] = _UNRECORDED
    return legend


def _by_class(ranked: list[tuple[int, int, str]]) -> dict[str, None]:
    return dict.fromkeys(query for _, _, query in sorted(ranked, key=lambda one: (one[1], one[0])))


def _prepare(axes: Axes, trace: SchedulerTrace, classes: Mapping[str, str]) -> None:
    axes.set_title(f"Policy {trace.policy}, {trace.seconds:.3g} s from {trace.started}", loc="left")
    axes.set_xlabel("ms (narrow bars are drawn wider, up to a dot)")
    axes.set_xlim(0, trace.seconds * 1000)
    axes.set_ylim(max(len(classes), 1) - 0.5, -0.5)
    said = [f"{_short(name)}\n{text}" for name, text in classes.items()]
    axes.set_yticks(range(len(classes)), said, linespacing=1.4)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=_LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    for between in range(len(classes) - 1):
        axes.axhline(between + 0.5, color=_LINE, linewidth=0.8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    if not trace.slices:
        axes.text(0.5, 0.5, "nothing ran", transform=axes.transAxes, ha="center", va="center", color=_PALE)
    elif trace.left_out:
        last = trace.slices[-1]
        axes.axvspan(last.at_ms + last.took_ms, trace.seconds * 1000, color=_UNRECORDED, zorder=0)


def _bars(trace: SchedulerTrace, row: int, name: str, colours: Mapping[str, str]) -> PolyCollection:
    """Return all bars of a class as one shape: drawn one by one, thousands would take minutes."""
    slices: list[TracedSlice] = [one for one in trace.slices if one.class_ == name]
    # Wide enough to be seen, but not so wide that an idle class looks busy.
    thinnest = trace.seconds * 1000 / max(_ACROSS, 3 * len(slices))
    begin = np.array([one.at_ms for one in slices])
    end = begin + np.maximum([one.took_ms for one in slices], thinnest)
    corners = np.empty((len(slices), 4, 2))
    corners[:, :, 0] = np.stack([begin, begin, end, end], axis=1)
    corners[:, :, 1] = row + _BAR * np.array([-1, 1, 1, -1])
    return PolyCollection(
        list(corners),
        facecolors=[colours.get(one.query, _OTHERS) for one in slices],
        linewidths=0,
        snap=False,  # or bars narrower than a dot would be drawn as one or not at all
        rasterized=len(trace.slices) > _AS_DOTS,
    )


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 9]}...{name[-6:]}"
