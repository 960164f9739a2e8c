"""Table 6: sensitivity to the initial quota slice."""

from __future__ import annotations

from statistics import fmean

from mavstream_experiments.bands import at_most, between
from mavstream_experiments.model import Cell, Claim, Experiment, Table
from mavstream_experiments.papers.abd import PAPER
from mavstream_experiments.papers.abd.cells import CALIBRATION_BY_KIND, SETTINGS, cell
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register

_PUBLISHED = {20: 1749, 50: 1788, 100: 1776, 500: 1775, 1000: 1768}
"""Weighted mean response time by initial quota slice; microseconds."""
_USUAL = 50  # as in the other experiments


def _cell(quota: int) -> Cell:
    return cell("E", "abd") if quota == _USUAL else Cell("E", "abd", {"quota_us": quota}, SETTINGS)


def _weighted(table: Table) -> list[float]:
    return [table[str(quota)]["weighted"] for quota in _PUBLISHED]


register(
    Experiment(
        name="abd-table-6",
        paper=PAPER,
        title="Table 6: sensitivity to the initial quota slice",
        about="Mean response time weighted by priority on workload E under ABD, by the quota slice that it "
        "starts with (experiment 3).",
        calibration=CALIBRATION_BY_KIND,
        cells={str(quota): _cell(quota) for quota in _PUBLISHED},
        claims=(
            Claim(
                "the weighted mean does not depend on the initial quota slice (highest over lowest, excess)",
                "1749 to 1788 us, 2.2 % apart (table 6)",
                lambda table: 100 * (max(_weighted(table)) / min(_weighted(table)) - 1),
                holds=at_most(5),
                partly=at_most(15),
                unit="%",
                no_effect=True,
            ),
            Claim(
                "the weighted mean has the published size (half to twice)",
                "1.77 ms in the mean (table 6)",
                lambda table: fmean(_weighted(table)),
                holds=between(0.885, 3.54),
                unit="ms",
            ),
        ),
        picture=Bars(
            "Wavg, ms",
            {f"{quota} us": {"ABD": (str(quota), "weighted")} for quota in _PUBLISHED},
        ),
    )
)
