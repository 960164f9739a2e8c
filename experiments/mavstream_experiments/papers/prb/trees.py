"""Cells on the query trees of the PRB paper, and what is worked out from them.

A cell is a policy on one tree; a tree is drawn, so that experiments with few operators average over several.
Response times are in units, which are microseconds in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from mavstream_experiments.model import Cell, Table

RB, PRB, RR, FIFO = "rb", "prb", "rr", "fifo"
LABELS = {RR: "RR", FIFO: "FIFO", RB: "RB", PRB: "PRB"}

Value = Callable[[Table], float]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Runs on trees of which one parameter is varied."""

    workload: str
    parameter: str
    values: tuple[float, ...]
    policies: tuple[str, ...]
    tuples: int
    """Of each stream; a stream has one leaf."""
    trees: tuple[int, ...] = (1,)
    others: tuple[tuple[str, float], ...] = ()
    """Parameters that stay the same."""

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
        """Return the mean response time in units, over the trees."""
        return lambda table: fmean(1000 * table[_name(policy, value, tree)]["mean"] for tree in self.trees)

    def reduction(self, value: float) -> Value:
        """Return by how many percent PRB is faster than RB, on average over the trees."""

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
        """Return the line of reductions."""
        return {"PRB against RB": {value: self.reduction(value) for value in self.values}}

    def steps(self, of: Callable[[float], Value], values: Sequence[float] | None = None) -> Value:
        """Return the least increase of something from one value of the parameter to the next."""
        places = self.values if values is None else values
        return lambda table: min(of(after)(table) - of(before)(table) for before, after in pairwise(places))

    def worst(self, policy: str, others: Sequence[str]) -> Value:
        """Return the largest ratio, over all values, of a policy's response time to the best of others."""

        def ratio(table: Table) -> float:
            return max(
                self.response(policy, value)(table)
                / min(self.response(other, value)(table) for other in others)
                for value in self.values
            )

        return ratio


def _name(policy: str, value: float, tree: int) -> str:
    return f"{policy} {value:g} tree {tree}"
