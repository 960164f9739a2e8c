"""Tables 1 and 2: the running example under FIFO and MTIQ."""

from __future__ import annotations

from mavstream_experiments.bands import at_least, at_most, below, between
from mavstream_experiments.model import Cell, Claim, Experiment, Metrics, Table
from mavstream_experiments.papers.amos import PAPER
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register
from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.scenario import SECOND

_PARTS = 40  # of a tuple
_HALVES = range(1, 15)
_FIFO, _MTIQ = "fifo", "mtiq"
_CLOSE = 0.05
"""Tolerance in units of time: the first of the parts that arrive together is processed alone, up to 0.04."""


def outputs(result: Result) -> Metrics:
    """Return the output in tuples at each half unit of time, and the times of the first and last output."""
    departures = result.answers["all"].departures / SECOND
    out = {f"out {half / 2:g}": float((departures <= half / 2 + _CLOSE).sum()) / _PARTS for half in _HALVES}
    queued = {
        f"queue {half / 2:g}": float(tuples) / _PARTS
        for half, tuples in zip(_HALVES, result.queues.tuples.tolist(), strict=False)
    }
    return {**out, **queued, "first": float(departures.min()), "last": float(departures.max())}


_CELLS = {policy: Cell("amos_example", policy, extra=outputs) for policy in (_FIFO, _MTIQ)}
_CALIBRATION = (
    "All numbers are the paper's. It counts fractions of tuples; here a tuple is 40 parts with a fortieth of "
    "the cost, and MTIQ takes up to 40 parts at a time where the paper takes what is left of one tuple. "
    "Queues do not hold what is being processed. Nothing is drawn at random: all seeds are the same."
)
_TABLE_1 = {2.0: 0.1, 3.0: 0.2, 4.0: 0.3}
"""Throughput by time."""


def _off(table: Table) -> float:
    return max(abs(table[_FIFO][f"out {time:g}"] - out) for time, out in _TABLE_1.items())


register(
    Experiment(
        name="amos-table-1",
        paper=PAPER,
        title="The running example: output",
        about="Output of three filters under FIFO (and MTIQ); two tuples arrive at each of 1, 2 and 3.",
        calibration=_CALIBRATION,
        cells=_CELLS,
        claims=(
            Claim(
                "FIFO has output 0.1, 0.2 and 0.3 tuples by 2, 3 and 4 (largest difference)",
                "throughput at 2, 3 and 4 (table 1)",
                _off,
                holds=at_most(0.001),
                unit="tuples",
            ),
            Claim(
                "FIFO has the first output at time",
                "0.1 at time 2 (table 1)",
                lambda table: table[_FIFO]["first"],
                holds=between(2 - _CLOSE, 2 + _CLOSE),
            ),
        ),
        picture=Lines(
            "time, units",
            "output, tuples",
            {
                label: {half / 2: (policy, f"out {half / 2:g}") for half in _HALVES}
                for label, policy in (("FIFO", _FIFO), ("MTIQ", _MTIQ))
            },
        ),
        quick=(_FIFO, _MTIQ),
    )
)
register(
    Experiment(
        name="amos-table-2",
        paper=PAPER,
        title="The running example: queues",
        about="The same example: tuples in all queues under MTIQ (and FIFO).",
        calibration=_CALIBRATION,
        cells=_CELLS,
        claims=(
            Claim(
                "MTIQ has no output by 4",
                "throughput 0 up to 4 (table 2)",
                lambda table: table[_MTIQ]["out 4"],
                holds=at_most(0),
                unit="tuples",
            ),
            Claim(
                "MTIQ has the first output later than FIFO by",
                "FIFO a much quicker first output (2.2); 3.5 units later by the rules of the example",
                lambda table: table[_MTIQ]["first"] - table[_FIFO]["first"],
                holds=between(3.5 - _CLOSE, 3.5 + _CLOSE),
                partly=at_least(1),
                unit="units",
            ),
            Claim(
                "MTIQ has shorter queues at 3, just before the arrivals (MTIQ to FIFO)",
                "1 against 2: 3 and 4 less the two that arrive (tables 1 and 2)",
                lambda table: table[_MTIQ]["queue 3"] / table[_FIFO]["queue 3"],
                holds=between(0.4, 0.6),
                partly=below(1),
                unit="times",
            ),
            Claim(
                "MTIQ has shorter queues at 4 (MTIQ to FIFO)",
                "2.125 against 3 (tables 1 and 2)",
                lambda table: table[_MTIQ]["queue 4"] / table[_FIFO]["queue 4"],
                holds=at_most(0.75),
                partly=below(1),
                unit="times",
            ),
        ),
        picture=Lines(
            "time, units",
            "tuples in queues",
            {
                label: {half / 2: (policy, f"queue {half / 2:g}") for half in _HALVES}
                for label, policy in (("FIFO", _FIFO), ("MTIQ", _MTIQ))
            },
        ),
    )
)
