"""Box plots of response times by class under several policies. Needs the extra `pictures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from mavstream_server.simulation.report.metrics import MILLISECOND
from mavstream_server.simulation.report.result import Result

# Palette of Okabe and Ito, which is safe for colour-blind readers.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#b8a200", "#7a4fa3")
_BOX, _NARROWEST, _HEIGHT = 0.24, 4.5, 3.3  # inches
_CHARACTER, _LEGEND = 0.075, 2.0  # inches: a letter of a name, and what is beside the axes, about
BOX_LEVELS = (10, 25, 50, 75, 90)
"""Whisker, box, median, box, whisker (dissertation, figure 2)."""
BOXES = "Box: 25th to 75th percentile; line: median; whiskers: 10th and 90th percentile; dot: mean."
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.title_fontsize": 8.0,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.dpi": 200,
    "svg.fonttype": "none",
}
"""Settings of matplotlib for pictures that are printed in a column of text; SVG files keep their text."""


def draw(results: Mapping[str, Result], file: Path) -> None:
    """Write a box plot as PNG or SVG: a group per policy, a box per class, on a logarithmic axis."""
    with mpl.rc_context(STYLE):
        _drawn(results).savefig(file, format=file.suffix[1:].lower())


def _drawn(results: Mapping[str, Result]) -> Figure:
    first = next(iter(results.values()))
    classes = list(first.classes)
    width = max(_NARROWEST, 2.0 + _BOX * len(results) * (len(classes) + 1))
    figure = Figure(figsize=(width, _HEIGHT), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for group, result in enumerate(results.values()):
        _boxes(axes, result, classes, group * (len(classes) + 1))
    middles = [group * (len(classes) + 1) + (len(classes) - 1) / 2 for group in range(len(results))]
    axes.set_ylabel("Response time (ms)")
    axes.set_yscale("log")
    plain_log(axes.yaxis)
    name_groups(axes, middles, list(results))
    axes.set_title(_title(first), loc="left")
    known = [Patch(color=colour(index), label=_label(first, name)) for index, name in enumerate(classes)]
    figure.legend(handles=known, loc="outside right upper", frameon=False, title="Class", alignment="left")
    explain(figure, BOXES)
    return figure


def plain_log(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers, also where it covers less than a power of ten."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def name_groups(axes: Axes, middles: Sequence[float], names: Sequence[str]) -> None:
    """Name the groups of boxes or bars, slanted where the names would touch each other."""
    axes.set_xticks(middles, names)
    axes.tick_params(axis="x", length=0)
    figure = axes.get_figure(root=True)
    assert figure is not None
    if max(map(len, names)) * _CHARACTER > (figure.get_figwidth() - _LEGEND) / len(names):
        axes.set_xticks(middles, names, rotation=30, ha="right", rotation_mode="anchor")
    axes.grid(axis="y", color="#e0e0e0", linewidth=0.6)
    axes.set_axisbelow(True)


def explain(figure: Figure, text: str) -> None:
    """Write what is drawn below a picture."""
    figure.supxlabel(text, x=0.01, ha="left", fontsize=7, color="#505050")


def _boxes(axes: Axes, result: Result, classes: list[str], begin: int) -> None:
    for index, name in enumerate(classes):
        responses = result.answers[name].responses
        if not responses.size:
            continue
        low, first, median, third, high = (np.percentile(responses, BOX_LEVELS) / MILLISECOND).tolist()
        box = {"whislo": low, "q1": first, "med": median, "q3": third, "whishi": high}
        mean = float(responses.mean()) / MILLISECOND
        drawn = axes.bxp(
            [{**box, "mean": mean}],
            positions=[begin + index],
            widths=0.7,
            showfliers=False,
            showmeans=True,
            patch_artist=True,
            manage_ticks=False,
            medianprops={"color": "black"},
            meanprops={
                "marker": "o",
                "markerfacecolor": "white",
                "markeredgecolor": "black",
                "markersize": 3.5,
                "markeredgewidth": 0.8,
            },
            boxprops={"linewidth": 0.7},
            whiskerprops={"linewidth": 0.8},
            capprops={"linewidth": 0.8},
        )
        drawn["boxes"][0].set_facecolor(colour(index))


def colour(index: int) -> str:
    """Return the colour of the class or series with an index."""
    return _COLOURS[index % len(_COLOURS)]


def _title(result: Result) -> str:
    cores = f"{result.cores} core{'s' if result.cores > 1 else ''}"
    return f"Workload {result.workload}, {cores}, {result.seconds:.3g} s simulated"


def _label(result: Result, name: str) -> str:
    return f"{name} (priority {result.classes[name].priority})"
