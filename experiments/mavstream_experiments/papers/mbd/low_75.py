"""Low75, figures 95 to 106: the LowInput experiments at the 75th percentile."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least
from mavstream_experiments.model import Claim, Experiment
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.low_input import (
    CALIBRATION,
    PLAIN,
    bars,
    cell,
    corrected,
    fastest,
    nearest,
    quickest,
    slowest,
)
from mavstream_experiments.papers.mbd.values import TO_REMOVE, not_removing, ratio
from mavstream_experiments.papers.mbd.variants import MODULES
from mavstream_experiments.registry import register

_LEVEL = ".p75"
_DETECTION = {"level": 75}
_ABOUT = (
    "Workload 5G_4 with 500 instead of 1200 tuples/s for class {0}, under MBD without and with a module; "
    "inversion is measured at the 75th percentile."
)
_CALIBRATION = CALIBRATION + (
    " The modules detect inversion at the 75th percentile; each answer counts with the mean of its slice."
)
_FEWEST, _FASTEST = "the lowest number (figure {0})", "the fastest (figure {0})"


def _fails(modules: tuple[str, ...], published: str) -> Claim:
    return Claim(
        f"{', '.join(module.upper() for module in modules)} cannot remove it (number of them that do not)",
        published,
        not_removing(modules, PLAIN, _LEVEL),
        holds=at_least(len(modules)),
        partly=at_least(len(modules) / 2),
        needs=TO_REMOVE,
    )


def _inverted(number: int, published: str) -> Claim:
    higher, lower = f"class{number}{_LEVEL}", f"class{number + 1}{_LEVEL}"
    return Claim(
        f"class {number} is slower than class {number + 1} at the 75th percentile without modules (ratio)",
        published,
        ratio(PLAIN, higher, PLAIN, lower),
        holds=above(1),
        unit="times",
    )


def _experiment(number: int, *claims: Claim) -> Experiment:
    cells = {PLAIN: cell(number), **{module: cell(number, module, **_DETECTION) for module in MODULES}}
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
        fastest("dvp", MODULES, "the lowest (6.3.3.3)"),
        slowest("dsp", MODULES, "the highest (6.3.3.3)"),
        *quickest("dsp", MODULES, _FEWEST.format(98), _FASTEST.format(97), _LEVEL),
    )
)

register(
    _experiment(
        2,
        _inverted(2, "there is inversion (figures 85, 100)"),
        *corrected(("ivp", "dsp", "isp"), "all but DVP do (figure 100)", _LEVEL),
        _fails(("dvp",), "all but DVP do (figure 100)"),
        nearest("dvp", MODULES, "the closest (figure 99)"),
        fastest("dvp", MODULES, "the lowest (6.3.3.4)"),
        slowest("dsp", MODULES, "the highest (6.3.3.4)"),
        *quickest("dsp", MODULES, _FEWEST.format(102), _FASTEST.format(101), _LEVEL),
    )
)

register(
    _experiment(
        3,
        _inverted(3, "there is inversion (figure 104)"),
        *corrected(("dsp",), "only DSP does (figure 104)", _LEVEL),
        _fails(("dvp", "ivp", "isp"), "only DSP does (figure 104)"),
        nearest("ivp", MODULES, "the closest (caption of figure 103; 6.3.3.5 says DVP)"),
        slowest("dsp", MODULES, "the highest (6.3.3.5)"),
        *quickest("dsp", MODULES, _FEWEST.format(106), _FASTEST.format(105), _LEVEL),
    )
)
