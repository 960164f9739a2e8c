"""Low75, figures 95 to 106: the LowInput experiments, looked at by their 75th percentiles."""

from __future__ import annotations

from mavstream_experiments.model import Claim, Experiment, at_least
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.claiming import Value, ratio
from mavstream_experiments.papers.mbd.low_input import (
    CALIBRATION,
    PLAIN,
    bars,
    cell,
    cheapest,
    corrected,
    dearest,
    nearest,
    quickest,
)
from mavstream_experiments.papers.mbd.variants import MODULES
from mavstream_experiments.registry import register

_LEVEL = ".p75"
_JUDGED = {"level": 75}
_ABOUT = (
    "Workload 5G_4 with 500 instead of 1200 tuples/s for class {0}, under MBD without and with a module; "
    "inversion is measured at the 75th percentile."
)
_CALIBRATION = CALIBRATION + (
    " The modules judge by the 75th percentile, each answer counted with the mean of its slice."
)
_FEWEST, _FASTEST = "the lowest number (figure {0})", "the fastest (figure {0})"


def _failing(*modules: str) -> Value:
    return lambda table: sum(table[module][f"inversion{_LEVEL}"] > 0 for module in modules)


def _fails(modules: tuple[str, ...], published: str) -> Claim:
    return Claim(
        f"{', '.join(module.upper() for module in modules)} cannot remove it: how many of them do not",
        published,
        _failing(*modules),
        holds=at_least(len(modules)),
        partly=at_least(len(modules) / 2),
    )


def _inverted(number: int, published: str) -> Claim:
    above, below = f"class{number}{_LEVEL}", f"class{number + 1}{_LEVEL}"
    return Claim(
        f"without modules class {number} answers later than class {number + 1} at the 75th percentile",
        published,
        ratio(PLAIN, above, PLAIN, below),
        holds=at_least(1),
        partly=at_least(0.95),
        unit="times",
    )


def _experiment(number: int, *claims: Claim) -> Experiment:
    cells = {PLAIN: cell(number), **{module: cell(number, module, **_JUDGED) for module in MODULES}}
    return Experiment(
        name=f"mbd-low-75-class-{number}",
        paper=PAPER,
        title=f"Low75 Class {number}: inversion at the 75th percentile",
        about=_ABOUT.format(number),
        calibration=_CALIBRATION,
        cells=cells,
        claims=claims,
        picture=bars((PLAIN, *MODULES), "p75"),
    )


register(
    _experiment(
        1,
        _inverted(1, "there is inversion (figure 96)"),
        *corrected(("dsp",), "only DSP does (figure 96)", _LEVEL),
        _fails(("dvp", "ivp", "isp"), "only DSP does (figure 96)"),
        nearest("dvp", MODULES, "the closest (figure 95)"),
        cheapest("dvp", MODULES, "the lowest (6.3.3.3)"),
        dearest("dsp", MODULES, "the highest (6.3.3.3)"),
        *quickest("dsp", MODULES, _FEWEST.format(98), _FASTEST.format(97)),
    )
)

register(
    _experiment(
        2,
        _inverted(2, "there is inversion (figures 85, 100)"),
        *corrected(("ivp", "dsp", "isp"), "all but DVP do (figure 100)", _LEVEL),
        _fails(("dvp",), "all but DVP do (figure 100)"),
        nearest("dvp", MODULES, "the closest (figure 99)"),
        cheapest("dvp", MODULES, "the lowest (6.3.3.4)"),
        dearest("dsp", MODULES, "the highest (6.3.3.4)"),
        *quickest("dsp", MODULES, _FEWEST.format(102), _FASTEST.format(101)),
    )
)

register(
    _experiment(
        3,
        _inverted(3, "there is inversion (figure 104)"),
        *corrected(("dsp",), "only DSP does (figure 104)", _LEVEL),
        _fails(("dvp", "ivp", "isp"), "only DSP does (figure 104)"),
        nearest("ivp", MODULES, "the closest (caption of figure 103; 6.3.3.5 says DVP)"),
        dearest("dsp", MODULES, "the highest (6.3.3.5)"),
        *quickest("dsp", MODULES, _FEWEST.format(106), _FASTEST.format(105)),
    )
)
