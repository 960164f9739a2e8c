"""Box plots of response times by class under several policies. Needs the extra `pictures`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mavstream_server.simulation.report.metrics import MILLISECOND
from mavstream_server.simulation.report.result import Result

# Palette of Okabe and Ito, which is safe for colour-blind readers.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#b8a200", "#7a4fa3")
_DOTS = 120  # per inch
_BOX, _HEIGHT = 0.42, 4.8  # inches
BOX_LEVELS = (10, 25, 50, 75, 90)
"""Whisker, box, median, box, whisker (dissertation, figure 2)."""


def draw(results: Mapping[str, Result], file: Path) -> None:
    """Write a box plot as PNG or SVG: a group per policy, a box per class, on a logarithmic axis.

    Whiskers are the 10th and the 90th percentile, the dot is the mean.
    """
    classes = list(next(iter(results.values())).classes)
    width = max(5.0, 1.5 + _BOX * len(results) * (len(classes) + 1))
    figure = Figure(figsize=(width, _HEIGHT), dpi=_DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for group, result in enumerate(results.values()):
        _boxes(axes, result, classes, group * (len(classes) + 1))
    axes.set_yscale("log")
    axes.set_ylabel("response time, ms")
    axes.set_xticks(
        [group * (len(classes) + 1) + (len(classes) - 1) / 2 for group in range(len(results))], list(results)
    )
    axes.grid(axis="y", which="both", color="#e0e0e0", linewidth=0.6)
    axes.set_axisbelow(True)
    first = next(iter(results.values()))
    axes.set_title(f"{first.workload}, {first.cores} core{'s' if first.cores > 1 else ''}", loc="left")
    known = [Patch(color=colour(index), label=_label(first, name)) for index, name in enumerate(classes)]
    figure.legend(handles=known, loc="outside right upper", frameon=False, title="Class", alignment="left")
    figure.savefig(file, format=file.suffix[1:].lower())


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
                "markersize": 4,
            },
        )
        drawn["boxes"][0].set_facecolor(colour(index))


def colour(index: int) -> str:
    """Return the colour of the class or series with an index."""
    return _COLOURS[index % len(_COLOURS)]


def _label(result: Result, name: str) -> str:
    return f"{name} (priority {result.classes[name].priority})"
