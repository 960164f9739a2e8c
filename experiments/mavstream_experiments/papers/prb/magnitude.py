"""Figures 11 and 12: the cost of an expensive operator, and the cost of transitions."""

from __future__ import annotations

from itertools import pairwise
from math import nan

from mavstream_experiments.bands import above, at_least, below, between
from mavstream_experiments.model import Cell, Claim, Experiment, Metrics, Table, Value
from mavstream_experiments.papers.prb import PAPER
from mavstream_experiments.papers.prb.trees import LABELS, PRB, RB, RR
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register
from mavstream_server.simulation.report.result import Result

_COSTS = (25.0, 50.0, 100.0, 200.0, 300.0)
_MOST = _COSTS[-1]
_RR_COSTS = (100.0, _MOST)  # round robin decides once per unit of time and is slow to simulate
_OVERHEADS = (0, 1, 5, 10, 20, 30, 40, 50, 60)
_TUPLES = 156  # of each of 64 streams


def overheads(result: Result) -> Metrics:
    """Return the response time in units for each cost of a transition.

    Transitions are counted and take no time in the run; their cost is added to the response time afterwards.
    """
    assert result.mean_ms is not None
    free, each = 1000 * result.mean_ms, result.counts.transitions / result.counts.tuples
    return {"free": free, "each": each, **{f"at {cost}": free + cost * each for cost in _OVERHEADS}}


def _cell(policy: str, cost: float) -> Cell:
    parameters = {"cost": cost, "tuples": _TUPLES}
    return Cell("prb_expensive", policy, settings={"parameters": parameters}, extra=overheads)


def _response(policy: str, cost: float) -> Value:
    return lambda table: table[f"{policy} {cost:g}"]["free"]


def _reduction(cost: float) -> Value:
    return lambda table: 100 * (1 - _response(PRB, cost)(table) / _response(RB, cost)(table))


def _least_rise(table: Table) -> float:
    return min(_reduction(dear)(table) - _reduction(cheap)(table) for cheap, dear in pairwise(_COSTS))


def _rr_to_rb(metric: str) -> Value:
    return lambda table: table[f"{RR} {_MOST:g}"][metric] / table[f"{RB} {_MOST:g}"][metric]


def _break_even(table: Table) -> float:
    """Return the cost of a transition at which RB and PRB are equally fast."""
    rb, prb = table[f"{RB} {_MOST:g}"], table[f"{PRB} {_MOST:g}"]
    more = prb["each"] - rb["each"]
    return (rb["free"] - prb["free"]) / more if more else nan


_CALIBRATION = (
    "The cost of the root, which the paper does not state, is 1 unit. One tree of depth 6 and fan-out 2 is "
    "drawn; costs, depth 4 and 10K tuples are the paper's."
)

register(
    Experiment(
        name="prb-figure-11",
        paper=PAPER,
        title="Cost of the expensive operator",
        about="Mean response time under RR, RB and PRB with one operator of 25 to 300 units at depth 4.",
        calibration=_CALIBRATION,
        cells={
            f"{policy} {cost:g}": _cell(policy, cost)
            for policy, costs in ((RB, _COSTS), (PRB, _COSTS), (RR, _RR_COSTS))
            for cost in costs
        },
        claims=(
            Claim(
                "PRB is faster than RB at every cost (PRB to RB, largest)",
                "PRB outperforms RB (5.5, figure 11)",
                lambda table: max(_response(PRB, c)(table) / _response(RB, c)(table) for c in _COSTS),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "the reduction by PRB rises with the cost (least rise from one cost to the next)",
                "the higher the cost, the longer RB waits (5.5, figure 11)",
                _least_rise,
                holds=above(0),
                unit="%",
            ),
            Claim(
                "round robin is faster than RB at a cost of 300 (RR to RB)",
                "RR can outperform RB when the cost is relatively high (5.5, figure 11)",
                _rr_to_rb("free"),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "round robin is slower than RB at a cost of 100 (RR to RB)",
                "only when the cost is relatively high (5.5, figure 11)",
                lambda table: _response(RR, 100.0)(table) / _response(RB, 100.0)(table),
                holds=above(1),
                unit="times",
            ),
        ),
        picture=Lines(
            "cost of the expensive operator, units",
            "mean response time, units",
            {
                LABELS[policy]: {cost: (f"{policy} {cost:g}", "free") for cost in costs}
                for policy, costs in ((RR, _RR_COSTS), (RB, _COSTS), (PRB, _COSTS))
            },
        ),
    )
)
register(
    Experiment(
        name="prb-figure-12",
        paper=PAPER,
        title="Cost of transitions",
        about="Mean response time under RR, RB and PRB with an operator of 300 units, as each transition "
        "between scheduler and operators costs 0 to 60 units.",
        calibration=f"{_CALIBRATION} Overheads are added afterwards (overhead x transitions / tuples), the "
        "reading under which 5.6 makes sense: if they took time, all policies would be overloaded from a few "
        "units on. What counts as a transition is a reading, too: an arrival that preempts invokes the "
        "scheduler once, for the slice that follows. Counted twice, the break-even would be about 40; "
        "without consultations, about 76.",
        cells={f"{policy} {_MOST:g}": _cell(policy, _MOST) for policy in (RR, RB, PRB)},
        claims=(
            Claim(
                "PRB is faster than RB up to an overhead of",
                "50 units (5.6, figure 12)",
                _break_even,
                holds=between(45, 56),
                partly=between(25, 100),
                unit="units",
                required=True,
            ),
            Claim(
                "round robin is faster than RB if transitions are free (RR to RB)",
                "RR outperforms RB only when the overhead is 0 (5.6, figure 12)",
                _rr_to_rb("free"),
                holds=below(1),
                unit="times",
            ),
            Claim(
                "round robin is much slower than RB at an overhead of 1 (RR to RB)",
                "highly unacceptable from 1 on, on a logarithmic axis (5.6, figure 12)",
                _rr_to_rb("at 1"),
                holds=at_least(2),
                partly=above(1),
                unit="times",
            ),
        ),
        picture=Lines(
            "cost of a transition, units",
            "mean response time, units",
            {
                LABELS[policy]: {float(cost): (f"{policy} {_MOST:g}", f"at {cost}") for cost in _OVERHEADS}
                for policy in (RR, RB, PRB)
            },
            log_y=True,
        ),
    )
)
