"""Sweeps of one parameter over the query trees of the PRB paper.

A cell is a policy on one tree. Trees are drawn at random, so that experiments with few operators average over
several. Response times are in units of the paper; a unit is a microsecond in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from mavstream_experiments.model import Cell, Table, Value

RB, PRB, RR, FIFO = "rb", "prb", "rr", "fifo"
LABELS = {RR: "RR", FIFO: "FIFO", RB: "RB", PRB: "PRB"}


@dataclass(frozen=True, slots=True)
class Sweep:
    """Runs in which one parameter of the trees is varied."""

    workload: str
    parameter: str
    values: tuple[float, ...]
    policies: tuple[str, ...]
    tuples: int
    """Tuples of each stream; every stream feeds one leaf."""
    trees: tuple[int, ...] = (1,)
    others: tuple[tuple[str, float], ...] = ()
    """Parameters that are not varied."""

    def cell(self, policy: str, value: float, tree: int) -> Cell:
        """Return one run."""
        parameters = {self.parameter: value, **dict(self.others), "tuples": self.tuples, "tree": tree}
        return Cell(self.workload, policy, settings={"parameters": parameters})

    @property
    def cells(self) -> dict[str, Cell]:
        """All runs by name."""
        return {
            _name(policy, value, tree): self.cell(policy, value, tree)
            for policy in self.policies
            for value in self.values
            for tree in self.trees
        }

    def response(self, policy: str, value: float) -> Value:
        """Return the mean response time over the trees, in units."""
        return lambda table: fmean(1000 * table[_name(policy, value, tree)]["mean"] for tree in self.trees)

    def reduction(self, value: float) -> Value:
        """Return by how many percent PRB lowers the response time of RB, on average over the trees."""

        def reduced(table: Table) -> float:
            return 100 * fmean(
                1 - table[_name(PRB, value, tree)]["mean"] / table[_name(RB, value, tree)]["mean"]
                for tree in self.trees
            )

        return reduced

    def responses(self) -> dict[str, dict[float, Value]]:
        """Return a line of response times for each policy."""
        return {
            LABELS[policy]: {value: self.response(policy, value) for value in self.values}
            for policy in self.policies
        }

    def reductions(self) -> dict[str, dict[float, Value]]:
        """Return the line of the reductions by PRB."""
        return {"PRB against RB": {value: self.reduction(value) for value in self.values}}

    def steps(self, of: Callable[[float], Value], values: Sequence[float] | None = None) -> Value:
        """Return the least increase from one value of the parameter to the next."""
        chosen = self.values if values is None else values
        return lambda table: min(of(after)(table) - of(before)(table) for before, after in pairwise(chosen))

    def worst(self, policy: str, others: Sequence[str]) -> Value:
        """Return the largest ratio over all values of a policy's response time to the lowest of others."""

        def ratio(table: Table) -> float:
            return max(
                self.response(policy, value)(table)
                / min(self.response(other, value)(table) for other in others)
                for value in self.values
            )

        return ratio


def _name(policy: str, value: float, tree: int) -> str:
    return f"{policy} {value:g} tree {tree}"
