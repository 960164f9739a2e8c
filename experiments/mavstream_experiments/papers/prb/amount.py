"""Figures 9 and 10: the number of expensive leaves."""

from __future__ import annotations

from mavstream_experiments.bands import above, below
from mavstream_experiments.model import Claim, Experiment, Table
from mavstream_experiments.papers.prb import PAPER
from mavstream_experiments.papers.prb.trees import PRB, RB, Sweep
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register

_COUNTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_SWEEP = Sweep("prb_expensive", "count", _COUNTS, (RB, PRB), tuples=156, others=(("depth", 6.0),))
_X = "expensive operators"
_ABOUT = "A tree of depth 6 and fan-out 2 with 1 to 32 leaves of 100 units, 10K tuples."
_CALIBRATION = (
    "The cost of the root, which the paper does not state, is 1 unit; the expensive leaves are those most to "
    "the left. One tree is drawn. The rest is the paper's."
)


def _least_step(table: Table) -> float:
    found = [
        _SWEEP.response(policy, 2 * count)(table) / _SWEEP.response(policy, count)(table)
        for policy in _SWEEP.policies
        for count in _COUNTS[:-1]
    ]
    return min(found)


def _peak(table: Table) -> float:
    return max(_SWEEP.reduction(count)(table) for count in _COUNTS[1:-1])


register(
    Experiment(
        name="prb-figure-9",
        paper=PAPER,
        title="Number of expensive operators: response times",
        about=f"Mean response time under RB and PRB. {_ABOUT}",
        calibration=_CALIBRATION,
        cells=_SWEEP.cells,
        claims=(
            Claim(
                "the response time rises with the number of expensive operators (to the previous, least)",
                "the response time increases with the number of expensive paths (5.4, figure 9)",
                _least_step,
                holds=above(1),
                unit="times",
            ),
            Claim(
                "PRB is faster than RB at every number (PRB to RB, largest)",
                "PRB against RB (5.4, figures 9 and 10)",
                _SWEEP.worst(PRB, (RB,)),
                holds=below(1),
                unit="times",
            ),
        ),
        picture=Lines(_X, "mean response time, units", _SWEEP.responses(), log_x=True),
    )
)
register(
    Experiment(
        name="prb-figure-10",
        paper=PAPER,
        title="Number of expensive operators: reduction by preemption",
        about=f"Reduction of the mean response time by PRB against RB. {_ABOUT}",
        calibration=_CALIBRATION,
        cells=_SWEEP.cells,
        claims=(
            Claim(
                "the reduction rises first: its peak exceeds that of one expensive operator by",
                "at a very low number there are less chances of conflict (5.4, figure 10)",
                lambda table: _peak(table) - _SWEEP.reduction(1.0)(table),
                holds=above(0),
                unit="%",
            ),
            Claim(
                "and falls then: its peak exceeds that of 32 by",
                "further increase brings the tree close to homogeneity (5.4, figure 10)",
                lambda table: _peak(table) - _SWEEP.reduction(32.0)(table),
                holds=above(0),
                unit="%",
            ),
        ),
        picture=Lines(_X, "reduction, %", _SWEEP.reductions(), log_x=True),
    )
)
