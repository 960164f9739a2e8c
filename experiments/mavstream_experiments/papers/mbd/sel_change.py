"""Sel-Change, figures 107 to 111: the selectivities of class 3 fall during the run."""

from __future__ import annotations

from mavstream_experiments.bands import above, at_least, at_most, below
from mavstream_experiments.model import Cell, Claim, Experiment
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.comparison import FIVE
from mavstream_experiments.papers.mbd.values import (
    TO_REMOVE,
    first_to_be_stable,
    metric,
    over_least,
    remaining_inversion,
)
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register

_PLAIN = "mbd"
_SETTINGS = {"parameters": {"stretch": 0.4}}
_VARIANTS = {
    _PLAIN: mbd(),
    "s": mbd(selectivity="s"),
    "dvp": mbd("dvp"),
    "dsp": mbd("dsp"),
    "dvp_s": mbd("dvp", "s"),
    "dsp_s": mbd("dsp", "s"),
    "dvp_sa": mbd("dvp", "sa"),
    "dsp_sa": mbd("dsp", "sa"),
}
_ONE_MODULE = ("s", "dvp", "dsp")
_BOTH = ("dvp_s", "dsp_s", "dvp_sa", "dsp_sa")


register(
    Experiment(
        name="mbd-sel-change",
        paper=PAPER,
        title="Sel-Change: selectivities fall during the run",
        about=(
            "Workload 5I with falling selectivities in class 3, under MBD with none, one and both kinds of "
            "modules."
        ),
        calibration=(
            "Fitted: costs (utilisation 0.94 at the beginning), the steps of the selectivity from 0.9 to "
            "0.1, and synchronised joins. The run is two and a half times shorter than the 2.75 s of "
            "10,000 tuples."
        ),
        cells={name: Cell("5I_sel_change", "mbd", options, _SETTINGS) for name, options in _VARIANTS.items()},
        claims=(
            Claim(
                "MBD without modules has priority inversion (inversion ratio)",
                "it has (figure 108)",
                metric(_PLAIN, "inversion"),
                holds=above(0),
            ),
            *(
                Claim(
                    f"{name.upper()} alone cannot remove it (remaining share of the inversion ratio)",
                    "it is still there (figure 108)",
                    remaining_inversion(name, _PLAIN),
                    holds=above(0),
                    unit="%",
                    needs=TO_REMOVE,
                )
                for name in _ONE_MODULE
            ),
            *(
                Claim(
                    f"{name.upper()} removes it (remaining share of the inversion ratio)",
                    "corrected (figure 108)",
                    remaining_inversion(name, _PLAIN),
                    holds=at_most(0),
                    partly=at_most(50),
                    unit="%",
                    needs=TO_REMOVE,
                )
                for name in _BOTH
            ),
            Claim(
                "of these, DSP_SA reaches a stable schedule with the fewest updates (share of the seeds)",
                "the least (figure 110)",
                first_to_be_stable("dsp_sa", _BOTH, "updates", _PLAIN),
                holds=at_least(100),
                unit="%",
                needs=TO_REMOVE,
            ),
            Claim(
                "of these, DSP_SA reaches a stable schedule the fastest (share of the seeds)",
                "the fastest (figure 109)",
                first_to_be_stable("dsp_sa", _BOTH, "converged", _PLAIN),
                holds=at_least(100),
                unit="%",
                needs=TO_REMOVE,
            ),
            Claim(
                "S has the lowest weighted response time of all modules (to the next)",
                "the lowest (figure 111)",
                over_least("s", (*_ONE_MODULE, *_BOTH), "weighted"),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "DVP_SA has the lowest weighted response time of those with both modules (to the next)",
                "the lowest (figure 111)",
                over_least("dvp_sa", _BOTH, "weighted"),
                holds=below(1),
                unit="times",
            ),
        ),
        picture=Bars(
            y="mean response time, ms",
            groups={cell: {name: (cell, f"{name}.mean") for name in FIVE} for cell in _VARIANTS},
        ),
    )
)
