"""Sel-Change, figures 107 to 111: the selections of class 3 let less and less pass."""

from __future__ import annotations

from mavstream_experiments.model import Cell, Claim, Experiment, at_least, at_most
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.claiming import against_least, figure
from mavstream_experiments.papers.mbd.comparison import FIVE
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register

_SETTINGS = {"parameters": {"stretch": 0.4}}
_VARIANTS = {
    "mbd": mbd(),
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
_VISIBLE = 0.001


register(
    Experiment(
        name="mbd-sel-change",
        paper=PAPER,
        title="Sel-Change: selectivities fall while queries run",
        about=(
            "Workload 5I with falling selectivities in class 3, under MBD with none, one and both kinds of "
            "modules."
        ),
        calibration=(
            "Fitted: costs (utilisation 0.94 at the beginning), the steps of the selectivity from 0.9 to "
            "0.1, and synchronised joins. The change goes two and a half times as fast as the 2.75 s "
            "that 10,000 tuples take."
        ),
        cells={name: Cell("5I_sel_change", "mbd", options, _SETTINGS) for name, options in _VARIANTS.items()},
        claims=(
            Claim(
                "MBD without modules has inversion",
                "it has (figure 108)",
                figure("mbd", "inversion"),
                holds=at_least(_VISIBLE),
            ),
            *(
                Claim(
                    f"{name.upper()} alone cannot remove it",
                    "it is still there (figure 108)",
                    figure(name, "inversion"),
                    holds=at_least(_VISIBLE),
                )
                for name in _ONE_MODULE
            ),
            *(
                Claim(
                    f"{name.upper()} removes it",
                    "corrected (figure 108)",
                    figure(name, "inversion"),
                    holds=at_most(0),
                    partly=at_most(0.02),
                )
                for name in _BOTH
            ),
            Claim(
                "of these, DSP_SA takes the fewest updates: over the fewest of the others",
                "the least (figure 110)",
                against_least("dsp_sa", _BOTH, "updates"),
                holds=at_most(1),
                partly=at_most(1.25),
                unit="times",
            ),
            Claim(
                "and has its last update earliest: over the earliest of the others",
                "the fastest (figure 109)",
                against_least("dsp_sa", _BOTH, "converged"),
                holds=at_most(1),
                unit="times",
            ),
            Claim(
                "S has the lowest weighted response time of all modules: over the next",
                "the lowest (figure 111)",
                against_least("s", (*_ONE_MODULE, *_BOTH), "weighted"),
                holds=at_most(1),
                partly=at_most(1.03),
                unit="times",
            ),
            Claim(
                "DVP_SA has the lowest of those that remove inversion: over the next",
                "the lowest (figure 111)",
                against_least("dvp_sa", _BOTH, "weighted"),
                holds=at_most(1),
                partly=at_most(1.03),
                unit="times",
            ),
        ),
        picture=Bars(
            y="mean response time, ms",
            groups={cell: {name: (cell, f"{name}.mean") for name in FIVE} for cell in _VARIANTS},
        ),
    )
)
