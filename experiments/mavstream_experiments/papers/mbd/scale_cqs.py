"""Scale_CQs, figures 70 to 75: queries in proportion to the cores."""

from __future__ import annotations

from mavstream_experiments.bands import at_most, between
from mavstream_experiments.model import Cell, Claim, Experiment, Table, Value
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.comparison import FIVE
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register

CORES = (2, 4, 8, 16)
CELLS = {str(cores): Cell(f"5S_{cores}", "mbd", mbd(), {"seconds": 0.5}) for cores in CORES}
_PUBLISHED = {
    "class1": (1.28, 1.56),
    "class2": (1.72, 1.85),
    "class3": (2.54, 2.67),
    "class4": (3.00, 3.13),
    "class5": (3.85, 4.13),
}
"""Lowest and highest mean response time over the numbers of cores, in ms (6.3.2.1)."""
_TOLERANCE = 0.15


def _spread(table: Table, name: str) -> float:
    """Return by how many percent the highest value over the numbers of cores exceeds the lowest."""
    found = [metrics[name] for metrics in table.values()]
    return 100 * (max(found) / min(found) - 1)


def _spread_of_classes(table: Table) -> float:
    return max(_spread(table, f"{name}.mean") for name in FIVE)


def _mean(name: str) -> Value:
    return lambda table: sum(metrics[f"{name}.mean"] for metrics in table.values()) / len(table)


register(
    Experiment(
        name="mbd-scale-cqs",
        paper=PAPER,
        title="Scale_CQs: queries in proportion to the cores",
        about=(
            "Response times under MBD without modules as cores and queries grow from 2 and 50 to 16 and 400."
        ),
        calibration=(
            "Fitted: per-tuple costs (utilisation 0.75, so that 1600 tuples/s are overload) and the set-up "
            "of 16 us per call, such that the weighted response time on 2 cores is close to the "
            "published 2.11 to 2.18 ms. Queries, priorities, the rate of 1200 tuples/s and cores are the "
            "dissertation's; half a second is simulated."
        ),
        cells=CELLS,
        claims=(
            Claim(
                "the weighted response time does not depend on the cores (highest over lowest, excess)",
                "2.11 to 2.18 ms, 3 % (figure 75)",
                lambda table: _spread(table, "weighted"),
                holds=at_most(10),
                unit="%",
                required=True,
                no_effect=True,
            ),
            Claim(
                "nor does that of any class (highest over lowest, excess, largest over the classes)",
                "1.28 to 1.56 ms for class 1, 22 %; 4 to 8 % for the others (6.3.2.1)",
                _spread_of_classes,
                holds=at_most(22),
                unit="%",
                no_effect=True,
            ),
            *(
                Claim(
                    f"class {name[-1]} has the published response time (mean over the numbers of cores)",
                    f"{low:g} to {high:g} ms (6.3.2.1)",
                    _mean(name),
                    holds=between(low * (1 - _TOLERANCE), high * (1 + _TOLERANCE)),
                    partly=between(low / 2, high * 2),
                    unit="ms",
                )
                for name, (low, high) in _PUBLISHED.items()
            ),
        ),
        picture=Lines(
            x="cores",
            y="response time, ms",
            series={
                **{name: {cores: (str(cores), f"{name}.mean") for cores in CORES} for name in FIVE},
                "weighted": {cores: (str(cores), "weighted") for cores in CORES},
            },
        ),
        quick=("2", "4"),
    )
)
