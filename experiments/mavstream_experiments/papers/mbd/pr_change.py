"""Pr-Change and Pr-Change-Merge, figures 112 to 118: priorities change during the run."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least, at_most, below, between
from mavstream_experiments.model import Cell, Claim, Experiment, Metrics
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.comparison import FIVE
from mavstream_experiments.papers.mbd.over_time import inversions, phases
from mavstream_experiments.papers.mbd.values import metric, ratio
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register
from mavstream_server.simulation.report.result import Result

_STRETCH = 0.4
_WINDOW_S = 0.1 * _STRETCH
_SETTLED = 0.05  # seconds after a change until the answers of the old schedule have left
_PHASES = {
    "first": (0.0, _STRETCH),
    "second": (_STRETCH + _SETTLED, 2 * _STRETCH),
    "third": (2 * _STRETCH + _SETTLED, 2.75 * _STRETCH),
}
_AFTER = {"after": (_STRETCH + _SETTLED, 2.75 * _STRETCH)}
_CALIBRATION = "Costs as in Compare_5I. {0} Changes are at 0.4 and 0.8 s instead of 1 and 2 s, to save time."


def by_phase(result: Result) -> Metrics:
    """Return response times before, between and after the changes, and inversions after the first."""
    return {**phases(result, _PHASES), **inversions(result, _WINDOW_S, _AFTER)}


def _cells(workload: str) -> dict[str, Cell]:
    settings = {"parameters": {"stretch": _STRETCH}}
    return {
        "mbd": Cell(workload, "mbd", mbd(), settings, by_phase),
        "mbd_up": Cell(workload, "mbd", mbd(priority="up"), settings, by_phase),
    }


def _alike(cell: str, phase: str, one: int, other: int, published: str) -> Claim:
    module = "without" if cell == "mbd" else "with"
    return Claim(
        f"classes {one} and {other} are alike in the {phase} phase {module} the priority module (ratio)",
        published,
        ratio(cell, f"{phase}.class{one}", cell, f"{phase}.class{other}"),
        holds=between(0.9, 1.1),
        partly=between(0.8, 1.25),
        unit="times",
        no_effect=True,
    )


_PICTURE = Bars(
    y="mean response time, ms",
    groups={
        f"{cell}\n{phase}": {name: (cell, f"{phase}.{name}") for name in FIVE}
        for cell in ("mbd", "mbd_up")
        for phase in _PHASES
    },
)

register(
    Experiment(
        name="mbd-pr-change",
        paper=PAPER,
        title="Pr-Change: equal priorities become different",
        about=(
            "Workload 5I; classes 1 and 2 begin with the same priority, and classes 4 and 5, too. Then "
            "class 1 gets 50 and class 5 gets 15. MBD without and with the priority module."
        ),
        calibration=_CALIBRATION.format("The priorities at the beginning are read as 40, 40, 30, 20, 20."),
        cells=_cells("5I_pr_change"),
        claims=(
            _alike("mbd", "third", 1, 2, "cannot be told apart (figure 113)"),
            _alike("mbd", "third", 4, 5, "cannot be told apart (figure 113)"),
            Claim(
                "there is priority inversion without the priority module (share of windows from 0.45 s on)",
                "there is (figure 114)",
                metric("mbd", "after.inverted"),
                holds=at_least(5),
                partly=at_least(1),
                unit="%",
            ),
            Claim(
                "there is none with the priority module (share of windows from 0.45 s on)",
                "none (figure 115)",
                metric("mbd_up", "after.inverted"),
                holds=at_most(0),
                partly=at_most(10),
                unit="%",
                no_effect=True,
            ),
            Claim(
                "class 1 is faster than class 2 once its priority is higher, with the module (class 1 to 2)",
                "detected at one second (6.3.5.1)",
                ratio("mbd_up", "second.class1", "mbd_up", "second.class2"),
                holds=at_most(0.95),
                partly=below(1),
                unit="times",
            ),
            Claim(
                "class 5 is slower than class 4 once its priority is lower, with the module (class 5 to 4)",
                "detected at two seconds (6.3.5.1)",
                ratio("mbd_up", "third.class5", "mbd_up", "third.class4"),
                holds=at_least(1.05),
                partly=above(1),
                unit="times",
            ),
        ),
        picture=_PICTURE,
    )
)

register(
    Experiment(
        name="mbd-pr-change-merge",
        paper=PAPER,
        title="Pr-Change-Merge: different priorities become equal",
        about=(
            "Workload 5I with priorities 50, 40, 30, 20 and 15; class 1 falls to 40 and class 5 rises to "
            "20. MBD without and with the priority module."
        ),
        calibration=_CALIBRATION.format("When the priorities change is read as in Pr-Change."),
        cells=_cells("5I_pr_change_merge"),
        claims=(
            Claim(
                "class 5 stays slower than class 4 without the priority module (class 5 to 4)",
                "higher (figure 117)",
                ratio("mbd", "third.class5", "mbd", "third.class4"),
                holds=at_least(1.05),
                partly=above(1),
                unit="times",
            ),
            Claim(
                "class 5 is faster with the priority module than without (with to without)",
                "lower (figure 118)",
                ratio("mbd_up", "third.class5", "mbd"),
                holds=at_most(0.95),
                partly=below(1),
                unit="times",
            ),
            _alike("mbd_up", "third", 4, 5, "treated as equal (6.3.5.2)"),
            _alike("mbd_up", "third", 1, 2, "treated as equal (6.3.5.2)"),
        ),
        picture=_PICTURE,
    )
)
