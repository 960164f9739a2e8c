"""PIAT (putting it all together), figures 120 to 135: priorities, rates and selectivities change."""

from __future__ import annotations

from math import nan

import numpy as np

from mavstream_experiments.bands import above, at_least, at_most, below, between
from mavstream_experiments.model import Cell, Claim, Experiment, Metrics, Table, Value
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.comparison import BASELINES, FIVE
from mavstream_experiments.papers.mbd.over_time import inversions, phases
from mavstream_experiments.papers.mbd.values import least_over, metric, over_others, ratio
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register
from mavstream_server.simulation.report.result import Result

_STRETCH = 0.15
_LENGTH = 10 * _STRETCH
_WINDOW_S = 0.2 * _STRETCH
_PHASES = {
    "run": (0.0, _LENGTH),
    "before": (0.0, 4.5 * _STRETCH),
    "after": (4.5 * _STRETCH, _LENGTH),
    "end": (9.0 * _STRETCH, _LENGTH),
}
_ADAPTIVE = ("dvp_sa_up", "dsp_sa_up")
_CELLS = (*BASELINES, "mbd", *_ADAPTIVE)
_CLASS_BLIND = ("mrr", "morr", "ml", "mol")


def over_the_run(result: Result) -> Metrics:
    """Return response times and inversions by phase, and `variation` of response times over time.

    The variation is the standard deviation over the windows divided by their mean, averaged over the classes.
    """
    windows = result.response_over_time(_WINDOW_S).values()
    variation = np.mean([np.nanstd(one) / np.nanmean(one) for one in windows])
    return {
        **phases(result, _PHASES),
        **inversions(result, _WINDOW_S, _PHASES),
        "variation": float(variation),
    }


def _cell(name: str) -> Cell:
    settings = {"parameters": {"stretch": _STRETCH}}
    if name in BASELINES:
        return Cell("5L", name, settings=settings, extra=over_the_run)
    module = name.partition("_")[0]
    options = mbd() if name == "mbd" else mbd(module, "sa", "up")
    return Cell("5L", "mbd", options, settings, over_the_run)


def _least_inverted(table: Table) -> float:
    """Return the least inversion of the others, less the higher of the two with modules."""
    others = [table[cell]["run.inversion"] for cell in _CELLS if cell not in _ADAPTIVE]
    return min(others) - max(table[cell]["run.inversion"] for cell in _ADAPTIVE)


def _blind_inverted(table: Table) -> float:
    return sum(table[cell]["run.inverted"] > 0 for cell in _CLASS_BLIND)


def _at_the_end(policy: str) -> Value:
    return lambda table: table[policy].get("end.class3", nan) / 1000 / _LENGTH


register(
    Experiment(
        name="mbd-piat",
        paper=PAPER,
        title="PIAT: priorities, rates and selectivities change",
        about=(
            "Workload 5L on six cores under the baselines, MBD without modules, and MBD with the modules "
            "for priorities, selectivities and inversion. Inversion is measured in windows, by the "
            "priorities of the time."
        ),
        calibration=(
            "Fitted: costs (utilisation 0.80 at the beginning), the kinds of queries, and what figures "
            "120 to 123 show and the text does not say (rates of class 1, the times of class 5's spikes, "
            "selectivities). The run is shorter than published: one and a half seconds instead of ten, "
            "with windows of 0.03 s."
        ),
        cells={name: _cell(name) for name in _CELLS},
        claims=(
            *(
                Claim(
                    f"{policy.upper()} starves class 3 (response time at the end, to the length of the run)",
                    f"{published}, in ten seconds",
                    _at_the_end(policy),
                    holds=between(0.1, 0.3),
                    partly=at_least(0.02),
                    unit="times",
                    needs="answers of class 3 at the end",
                )
                for policy, published in (("pct", "above 2 s (figure 124)"), ("pct_s", "2 s (figure 125)"))
            ),
            *(
                Claim(
                    f"class 3 is the slowest under {policy.upper()} (to the slowest other)",
                    f"the highest (figure {number})",
                    over_others(policy, "class3", FIVE),
                    holds=above(1),
                    unit="times",
                )
                for policy, number in (("mrr", 126), ("morr", 127), ("mol", 129))
            ),
            Claim(
                "MORR is slower than MRR (mean response time, MORR to MRR)",
                "higher (6.3.7)",
                ratio("morr", "mean", "mrr"),
                holds=above(1),
                unit="times",
            ),
            Claim(
                "MRR, MORR, ML and MOL have priority inversion (number of them that do)",
                "all four (figure 135)",
                _blind_inverted,
                holds=at_least(len(_CLASS_BLIND)),
            ),
            Claim(
                "response times vary more over time under ML than under MRR (ML to MRR)",
                "fluctuate dramatically (figure 128)",
                ratio("ml", "variation", "mrr"),
                holds=at_least(1.5),
                partly=above(1),
                unit="times",
            ),
            Claim(
                "MPRR starves the lowest class (mean of class 5)",
                "close to 120 ms (figure 130)",
                metric("mprr", "class5.mean"),
                holds=between(80, 160),
                partly=at_least(20),
                unit="ms",
            ),
            Claim(
                "all classes are slower under MPRR than under MBD with modules (MPRR to DVP, least)",
                "much higher (6.3.7)",
                least_over(("mprr",), "dvp_sa_up", [f"{name}.mean" for name in FIVE]),
                holds=above(1),
                unit="times",
            ),
            Claim(
                "MPRR has priority inversion after the priorities change at 4.5 s (share of windows)",
                "it does not detect the changes (figures 130, 135)",
                metric("mprr", "after.inverted"),
                holds=at_least(5),
                unit="%",
            ),
            Claim(
                "MBD without modules has priority inversion after 4.5 s (class 4 to class 5)",
                "class 4 is higher than class 5 (figure 131)",
                ratio("mbd", "after.class4", "mbd", "after.class5"),
                holds=above(1),
                unit="times",
            ),
            *(
                Claim(
                    f"class 4 is faster than class 5 after 4.5 s under {module.upper()} (class 4 to class 5)",
                    f"lower (figure {number})",
                    ratio(f"{module}_sa_up", "after.class4", f"{module}_sa_up", "after.class5"),
                    holds=at_most(0.95),
                    partly=below(1),
                    unit="times",
                )
                for module, number in (("dvp", 132), ("dsp", 133))
            ),
            Claim(
                "DVP and DSP have less inversion than all others (least other, less the higher of both)",
                "the lowest (figure 134)",
                _least_inverted,
                holds=above(0),
            ),
            Claim(
                "DSP has priority inversion for a short time at most (share of windows)",
                "from 7.2 to 7.6 s, 4 % of the run (figure 135)",
                metric("dsp_sa_up", "run.inverted"),
                holds=at_most(4),
                partly=at_most(20),
                unit="%",
                no_effect=True,
            ),
        ),
        picture=Bars(
            y="mean response time, ms",
            groups={
                cell.replace("_sa_up", "+"): {name: (cell, f"{name}.mean") for name in FIVE}
                for cell in _CELLS
            },
            log_y=True,
        ),
    )
)
