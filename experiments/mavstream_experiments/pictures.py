"""Draws the pictures of experiments. Needs the extra `pictures`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mavstream_experiments.model import Experiment, Table
from mavstream_experiments.pictures_model import Bars, Boxes, Lines, Point
from mavstream_experiments.verdicts import Estimate, estimate
from mavstream_server.simulation.report.pictures import (
    BOX_LEVELS,
    BOXES,
    STYLE,
    colour,
    explain,
    name_groups,
    plain_log,
)

_SIZE = (6.4, 3.6)  # inches
_DOTS = 150  # per inch, so that hundred pictures stay small
_WHISKERS = "Error bars: 95 % confidence interval of the mean over the seeds."
_MARKERS = "osD^vP*X"


def draw(experiment: Experiment, tables: Sequence[Table], file: Path) -> None:
    """Write the picture of an experiment as PNG."""
    assert experiment.picture is not None
    with mpl.rc_context(STYLE):
        _drawn(experiment, tables).savefig(file, format="png", dpi=_DOTS, metadata={"Software": None})


def _drawn(experiment: Experiment, tables: Sequence[Table]) -> Figure:
    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    match experiment.picture:
        case Lines() as lines:
            _lines(axes, lines, tables)
        case Bars() as bars:
            _bars(axes, bars, tables)
        case Boxes() as boxes:
            _boxes(axes, boxes, tables)
    axes.set_title(experiment.title, loc="left")
    axes.grid(axis="y", color="#e0e0e0", linewidth=0.6)
    axes.set_axisbelow(True)
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside right upper", frameon=False)
    if isinstance(experiment.picture, Boxes):
        explain(figure, f"{BOXES} Means over {len(tables)} seeds." if len(tables) > 1 else BOXES)
    elif len(tables) > 1:
        explain(figure, _WHISKERS)
    return figure


def _lines(axes: Axes, picture: Lines, tables: Sequence[Table]) -> None:
    for index, (label, points) in enumerate(picture.series.items()):
        known = {x: _estimate(point, tables) for x, point in sorted(points.items())}
        axes.errorbar(
            list(known),
            [one.mean for one in known.values()],
            yerr=_bars_of(list(known.values())),
            label=label,
            color=colour(index),
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=4,
            linewidth=1.4,
            capsize=2,
        )
    axes.set_xlabel(picture.x)
    axes.set_ylabel(picture.y)
    axes.set_xscale("log" if picture.log_x else "linear")
    _scale(axes, log=picture.log_y)


def _bars(axes: Axes, picture: Bars, tables: Sequence[Table]) -> None:
    labels = list(dict.fromkeys(label for bars in picture.groups.values() for label in bars))
    width = 0.8 / len(labels)
    for index, label in enumerate(labels):
        present = [
            (number, bars[label]) for number, bars in enumerate(picture.groups.values()) if label in bars
        ]
        known = [_estimate(point, tables) for _, point in present]
        axes.bar(
            [number + (index - (len(labels) - 1) / 2) * width for number, _ in present],
            [one.mean for one in known],
            width,
            yerr=_bars_of(known),
            label=label,
            color=colour(index),
            error_kw={"linewidth": 0.8, "capsize": 1.5},
        )
    name_groups(axes, range(len(picture.groups)), list(picture.groups))
    axes.set_ylabel(picture.y)
    _scale(axes, log=picture.log_y)


def _boxes(axes: Axes, picture: Boxes, tables: Sequence[Table]) -> None:
    """Draw percentiles, each the mean over the seeds, with the mean response time as a dot."""
    stride = len(picture.classes) + 1
    for group, cell in enumerate(picture.cells.values()):
        for index, name in enumerate(picture.classes):
            if not all(f"{name}.mean" in table[cell] for table in tables):
                continue
            low, first, median, third, high = (
                _estimate((cell, f"{name}.p{level}"), tables).mean for level in BOX_LEVELS
            )
            mean = _estimate((cell, f"{name}.mean"), tables).mean
            drawn = axes.bxp(
                [{"whislo": low, "q1": first, "med": median, "q3": third, "whishi": high, "mean": mean}],
                positions=[group * stride + index],
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
    middles = [group * stride + (stride - 2) / 2 for group in range(len(picture.cells))]
    name_groups(axes, middles, list(picture.cells))
    axes.set_ylabel(picture.y)
    _scale(axes, log=True)
    for index, name in enumerate(picture.classes):
        axes.plot([], [], "s", color=colour(index), label=name)  # for the legend


def _scale(axes: Axes, *, log: bool) -> None:
    axes.set_yscale("log" if log else "linear")
    if log:
        plain_log(axes.yaxis)


def _estimate(point: Point, tables: Sequence[Table]) -> Estimate:
    if callable(point):
        return estimate([point(table) for table in tables])
    cell, metric = point
    return estimate([table[cell][metric] for table in tables])


def _bars_of(known: Sequence[Estimate]) -> tuple[list[float], list[float]] | None:
    if any(one.low == -float("inf") for one in known):
        return None
    return [one.mean - one.low for one in known], [one.high - one.mean for one in known]
