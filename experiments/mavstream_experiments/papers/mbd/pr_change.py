"""Pr-Change and Pr-Change-Merge, figures 112 to 118: priorities change while queries run."""

from __future__ import annotations

from mavstream_experiments.model import Cell, Claim, Experiment, Figures, at_least, at_most, between
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.claiming import figure, ratio
from mavstream_experiments.papers.mbd.comparison import FIVE
from mavstream_experiments.papers.mbd.over_time import inversions, phases
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register
from mavstream_server.simulation.report.result import Result

_STRETCH = 0.4
_WINDOW_S = 0.1 * _STRETCH
_SETTLED = 0.05  # seconds after a change in which answers of the old schedule still leave
_PHASES = {
    "first": (0.0, _STRETCH),
    "second": (_STRETCH + _SETTLED, 2 * _STRETCH),
    "third": (2 * _STRETCH + _SETTLED, 2.75 * _STRETCH),
}
_AFTER = {"after": (_STRETCH + _SETTLED, 2.75 * _STRETCH)}
_CALIBRATION = "Costs as in Compare_5I. {0} Changes come at 0.4 and 0.8 s instead of 1 and 2 s, to save time."


def by_phase(result: Result) -> Figures:
    """Return response times before, between and after the changes, and inversions after the first."""
    return {**phases(result, _PHASES), **inversions(result, _WINDOW_S, _AFTER)}


def _cells(workload: str) -> dict[str, Cell]:
    settings = {"parameters": {"stretch": _STRETCH}}
    return {
        "mbd": Cell(workload, "mbd", mbd(), settings, by_phase),
        "mbd_up": Cell(workload, "mbd", mbd(priority="up"), settings, by_phase),
    }


def _alike(cell: str, phase: str, one: str, other: str, published: str) -> Claim:
    name = "without the priority module" if cell == "mbd" else "with it"
    return Claim(
        f"{name}, {one} and {other} are alike in the {phase} phase",
        published,
        ratio(cell, f"{phase}.{one}", cell, f"{phase}.{other}"),
        holds=between(0.9, 1.1),
        partly=between(0.8, 1.25),
        unit="times",
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
        title="Pr-Change: priorities come to differ",
        about=(
            "Workload 5I, in which classes 1 and 2, and 4 and 5, begin with one priority; then class 1 "
            "gets 50 and class 5 gets 15. MBD without and with the priority module."
        ),
        calibration=_CALIBRATION.format("The priorities at the beginning are read as 40, 40, 30, 20, 20."),
        cells=_cells("5I_pr_change"),
        claims=(
            _alike("mbd", "third", "class1", "class2", "cannot be told apart (figure 113)"),
            _alike("mbd", "third", "class4", "class5", "cannot be told apart (figure 113)"),
            Claim(
                "without the priority module there is inversion: share of the windows after the first change",
                "there is (figure 114)",
                figure("mbd", "after.inverted"),
                holds=at_least(5),
                partly=at_least(1),
                unit="%",
            ),
            Claim(
                "with it there is none",
                "none (figure 115)",
                figure("mbd_up", "after.inverted"),
                holds=at_most(0),
                partly=at_most(10),
                unit="%",
            ),
            Claim(
                "with it class 1 answers earlier than class 2 once its priority is higher",
                "detected at one second (6.3.5.1)",
                ratio("mbd_up", "second.class1", "mbd_up", "second.class2"),
                holds=at_most(0.95),
                partly=at_most(1),
                unit="times",
            ),
            Claim(
                "with it class 5 answers later than class 4 once its priority is lower",
                "detected at two seconds (6.3.5.1)",
                ratio("mbd_up", "third.class5", "mbd_up", "third.class4"),
                holds=at_least(1.05),
                partly=at_least(1),
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
        title="Pr-Change-Merge: priorities become the same",
        about=(
            "Workload 5I with priorities 50, 40, 30, 20 and 15; class 1 falls to 40 and class 5 rises to "
            "20. MBD without and with the priority module."
        ),
        calibration=_CALIBRATION.format("When the priorities change is read as in Pr-Change."),
        cells=_cells("5I_pr_change_merge"),
        claims=(
            Claim(
                "without the priority module class 5 keeps answering later than class 4",
                "higher (figure 117)",
                ratio("mbd", "third.class5", "mbd", "third.class4"),
                holds=at_least(1.05),
                partly=at_least(1),
                unit="times",
            ),
            Claim(
                "with it class 5 answers earlier than without",
                "lower (figure 118)",
                ratio("mbd_up", "third.class5", "mbd"),
                holds=at_most(0.95),
                partly=at_most(1),
                unit="times",
            ),
            _alike("mbd_up", "third", "class4", "class5", "treated as equal (6.3.5.2)"),
            _alike("mbd_up", "third", "class1", "class2", "treated as equal (6.3.5.2)"),
        ),
        picture=_PICTURE,
    )
)
