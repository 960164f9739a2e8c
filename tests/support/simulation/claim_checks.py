"""Detect claims that cannot fail, by judging artificial metrics.

Two kinds of tables are made up. In the first nothing differs: all classes have the same response times in all
cells, and nothing is inverted. Only claims of no effect may hold there, in whole or in part. In the second
response times are drawn for every class and cell, whatever the policies. Each claim has to be refuted by some
of these.

What the simulator guarantees whatever a policy does holds in both: policies on the same workload get the same
tuples and give the same number of answers, and cells that are the same simulation have the same metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from math import exp
from random import Random

from mavstream_experiments.model import Cell, Claim, Experiment, Metrics, Table
from mavstream_experiments.verdicts import Verdict, findings
from mavstream_server.simulation import load, simulate
from mavstream_server.simulation.report.metrics import LEVELS, inversion_ratio, weighted_mean

CONSERVED = ("answers", "tuples")
"""Metrics that a policy cannot change: every tuple is processed in the end."""
DRAWS = 400
ALIKE_AT = (1e-3, 1.0, 3.0, 50.0, 1e3, 1e6)
"""Values of all metrics where nothing differs; several, because claims about sizes hold at some of them."""
SHORT_S = 0.05


class Drawn(Mapping[str, float]):
    """Metrics that are made up when they are asked for."""

    def __init__(self, draw: Callable[[str], float]) -> None:
        self._draw = cache(draw)

    def __getitem__(self, name: str) -> float:
        return self._draw(name)

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError("made-up metrics have no end")

    def __len__(self) -> int:
        raise NotImplementedError("made-up metrics have no end")


def faults(experiment: Experiment) -> list[str]:
    """Return the faults of the claims of an experiment, one line each."""
    return [
        f"{experiment.name}: {claim.text!r} {fault}"
        for claim in experiment.claims
        for fault in _faults(replace(experiment, claims=(replace(claim, fitted=False),)))
    ]


def _faults(experiment: Experiment) -> Iterator[str]:
    (claim,) = experiment.claims
    alike = {_verdict(experiment, nothing_differs(experiment, level)) for level in ALIKE_AT}
    if claim.no_effect and alike != {Verdict.REPRODUCED}:
        yield f"claims that there is no effect, but where nothing differs it is {', '.join(sorted(alike))}"
    if not claim.no_effect and alike <= {Verdict.REPRODUCED, Verdict.PARTLY}:
        yield f"is {' or '.join(sorted(alike))} where nothing differs"
    same = _same_simulations(experiment, claim) if claim.no_effect else {}
    drawn = (_verdict(experiment, everything_differs(experiment, seed, same)) for seed in range(DRAWS))
    if Verdict.NOT not in drawn:
        yield "is not refuted by any made-up metrics"


def _verdict(experiment: Experiment, table: Table) -> Verdict:
    (found,) = findings(experiment, [table] * 5)
    return found.verdict


# Made-up tables


def nothing_differs(experiment: Experiment, level: float) -> Table:
    """Return the same metrics for all cells and classes, without any inversion."""

    def metric(name: str) -> float:
        if "inver" in name:
            return 0.0
        if name == "starvation":
            return 1.0
        kind = name.rpartition(".")[2]
        return level * int(kind[1:]) / 50 if kind in _PERCENTILES else level

    return {name: Drawn(metric) for name in experiment.cells}


def everything_differs(experiment: Experiment, seed: int, same: Mapping[str, str]) -> Table:
    """Return metrics drawn for each cell; `same` names for a cell the one that it shares them with.

    With some seeds metrics differ a little, with others a lot. In about half of the cells none is inverted.
    """
    return {
        name: _drawn_cell(cell, seed, f"{seed} {experiment.name} {same.get(name, name)}")
        for name, cell in experiment.cells.items()
    }


_PERCENTILES = tuple(f"p{level}" for level in LEVELS)
_SPREADS = (0.01, 0.3, 3.0)


def _drawn_cell(cell: Cell, seed: int, drawing: str) -> Metrics:
    spread = _SPREADS[seed % len(_SPREADS)]
    in_order = Random(f"{drawing} order").random() < 0.5
    responses = _responses(cell, drawing, spread, in_order)

    def metric(name: str) -> float:
        if name in CONSERVED:
            return _size(f"{seed} {name} {cell.workload} {dict(cell.settings)}", spread)
        if name in responses:
            return responses[name]
        if "inver" in name and (in_order or Random(f"{drawing} {name}").random() < 0.5):
            return 0.0
        return _size(f"{drawing} {name}", spread)

    return Drawn(metric)


def _responses(cell: Cell, drawing: str, spread: float, in_order: bool) -> dict[str, float]:
    """Return response times of all classes, and the metrics that follow from them."""
    priorities = _priorities(cell.workload, tuple(sorted(cell.settings.get("parameters", {}).items())))
    means = [_size(f"{drawing} {name}", spread) for name in priorities]
    if in_order:
        means.sort()
    found: dict[str, float] = {}
    for name, mean in zip(priorities, means, strict=True):
        found[f"{name}.mean"] = mean
        random = Random(f"{drawing} {'' if in_order else name} percentiles")
        factors = sorted(random.lognormvariate(0, 1) for _ in LEVELS)
        found |= {f"{name}.{kind}": mean * factor for kind, factor in zip(_PERCENTILES, factors, strict=True)}
    for kind in ("mean", *_PERCENTILES):
        classes = [(priority, found[f"{name}.{kind}"]) for name, priority in priorities.items()]
        suffix = "" if kind == "mean" else f".{kind}"
        found[f"inversion{suffix}"] = inversion_ratio(classes)
        found[f"weighted{suffix}"] = weighted_mean(classes) or 0.0
    found["starvation"] = means[-1] / means[0]
    found["mean"] = sum(means) / len(means)
    return found


@cache
def _priorities(workload: str, parameters: tuple[tuple[str, float], ...]) -> dict[str, int]:
    """Return the priorities by class, the most important class first."""
    classes = load(workload, dict(parameters)).classes.items()
    return dict(sorted(((name, one.priority) for name, one in classes), key=lambda one: -one[1]))


def _size(drawing: str, spread: float) -> float:
    return exp(Random(drawing).gauss(2, spread))


# Cells that are the same simulation


def _same_simulations(experiment: Experiment, claim: Claim) -> dict[str, str]:
    """Return for each cell that the claim reads the first one that does the same at the same times."""
    first: dict[str, str] = {}
    same = {}
    for name in sorted(_cells_read(experiment, claim)):
        cell = experiment.cells[name]
        same[name] = first.setdefault(_digest(cell), name)
    return same


def _cells_read(experiment: Experiment, claim: Claim) -> set[str]:
    read: set[str] = set()

    def noted(name: str) -> Metrics:
        def metric(_: str) -> float:
            read.add(name)
            return 1.0

        return Drawn(metric)

    claim.value({name: noted(name) for name in experiment.cells})
    return read


def _digest(cell: Cell) -> str:
    settings = {**cell.settings, "seconds": min(cell.settings.get("seconds", SHORT_S), SHORT_S)}
    found = simulate(cell.workload, cell.policy, cell.options, seed=1, digest=True, **settings).digest
    assert found is not None
    return f"{cell.workload} {found}"
