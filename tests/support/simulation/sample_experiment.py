"""A sample experiment of one cell and one claim, for tests of running and reporting."""

from __future__ import annotations

from typing import Any

from mavstream_experiments.bands import at_least
from mavstream_experiments.model import Cell, Claim, Experiment, Table


def gain(table: Table) -> float:
    return table["only"]["gain"]


def experiment(name: str = "made-up", **claim: Any) -> Experiment:
    """Return an experiment that claims a gain of at least 3; keywords are passed to the claim."""
    return Experiment(
        name=name,
        paper="A paper",
        title="A title",
        about="What is done.",
        calibration="Nothing was fitted.",
        cells={"only": Cell("A", "rr", settings={"seconds": 0.05})},
        claims=(Claim("it gains", "3 times", gain, at_least(3), unit="times", required=True, **claim),),
    )


def tables(*gains: float) -> list[Table]:
    """Return a table for each seed."""
    return [{"only": {"gain": gain}} for gain in gains]
