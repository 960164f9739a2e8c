"""Figures 5 and 6: skewed selectivities."""

from __future__ import annotations

from mavstream_experiments.bands import above, below
from mavstream_experiments.model import Claim, Experiment
from mavstream_experiments.papers.prb import PAPER
from mavstream_experiments.papers.prb.trees import PRB, RB, Sweep
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register

_SWEEP = Sweep(
    "prb_selectivity_skew", "skew", (0.0, 0.3, 0.6, 0.9), (RB, PRB), tuples=200, trees=(1, 2, 3, 4)
)
_X = "Zipf parameter of the selectivities"
_ABOUT = "50 operators of 100 units with selectivities of 0.01 to 1, over four trees and 10K tuples."
_CALIBRATION = (
    "The cost of the root, which the paper does not state, is 1 unit. Utilisation 0.9, costs and the range "
    "of the selectivities are the paper's."
)

register(
    Experiment(
        name="prb-figure-5",
        paper=PAPER,
        title="Skewed selectivities: response times",
        about=f"Mean response time under RB and PRB. {_ABOUT}",
        calibration=_CALIBRATION,
        cells=_SWEEP.cells,
        claims=(
            Claim(
                "PRB is faster than RB at every skew (PRB to RB, largest)",
                "PRB always outperforms RB (5.2, figure 5)",
                _SWEEP.worst(PRB, (RB,)),
                holds=below(1),
                unit="times",
            ),
        ),
        picture=Lines(_X, "mean response time, units", _SWEEP.responses()),
    )
)
register(
    Experiment(
        name="prb-figure-6",
        paper=PAPER,
        title="Skewed selectivities: reduction by preemption",
        about=f"Reduction of the mean response time by PRB against RB. {_ABOUT}",
        calibration=_CALIBRATION,
        cells=_SWEEP.cells,
        claims=(
            Claim(
                "the reduction is greater at a skew of 0.9 than at 0 (difference)",
                "the reduction increases by increasing the skew (5.2, figure 6)",
                _SWEEP.steps(_SWEEP.reduction, (0.0, 0.9)),
                holds=above(0),
                unit="%",
            ),
            Claim(
                "the reduction rises with the skew (least rise from one skew to the next)",
                "the reduction increases by increasing the skew (5.2, figure 6)",
                _SWEEP.steps(_SWEEP.reduction),
                holds=above(0),
                unit="%",
            ),
        ),
        picture=Lines(_X, "reduction, %", _SWEEP.reductions()),
    )
)
