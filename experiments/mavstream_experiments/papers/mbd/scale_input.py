"""Scale_Input, figures 76 to 81: input rates in proportion to the cores."""

from __future__ import annotations

from itertools import pairwise

from mavstream_experiments.bands import above, at_least, at_most, below
from mavstream_experiments.model import Cell, Claim, Experiment, Table
from mavstream_experiments.papers.mbd import PAPER
from mavstream_experiments.papers.mbd.comparison import FIVE
from mavstream_experiments.papers.mbd.scale_cqs import CORES
from mavstream_experiments.papers.mbd.values import ratio
from mavstream_experiments.papers.mbd.variants import mbd
from mavstream_experiments.pictures_model import Lines
from mavstream_experiments.registry import register

_FIRST, _LAST = str(CORES[0]), str(CORES[-1])


def _exceptions(table: Table) -> float:
    """Return how often a class is not faster with more cores and input."""
    steps = list(pairwise(str(cores) for cores in CORES))
    means = [f"{name}.mean" for name in FIVE]
    return sum(table[more][mean] >= table[fewer][mean] for fewer, more in steps for mean in means)


def _batches(table: Table) -> float:
    """Return the answers per slice on the most cores divided by those on the fewest."""
    fewest, most = (table[cell]["answers"] / table[cell]["slices"] for cell in (_FIRST, _LAST))
    return most / fewest


register(
    Experiment(
        name="mbd-scale-input",
        paper=PAPER,
        title="Scale_Input: input rates in proportion to the cores",
        about="Response times of workload 5G_n under MBD without modules, at 300 tuples/s for each core.",
        calibration=(
            "Costs as in Scale_CQs: work on tuples loads each core to the same utilisation (0.75) in every "
            "cell. Queries, priorities, rates and cores are the dissertation's; half a second is simulated."
        ),
        cells={str(cores): Cell(f"5G_{cores}", "mbd", mbd(), {"seconds": 0.5}) for cores in CORES},
        claims=(
            Claim(
                "every class is faster at every step from 2 to 16 cores (exceptions among the 15 steps)",
                "all classes decrease (figures 77 to 81)",
                _exceptions,
                holds=at_most(0),
                partly=at_most(3),
            ),
            *(
                Claim(
                    f"class {name[-1]} is faster on 16 cores than on 2 (16 to 2)",
                    "decreases (figures 77 to 81)",
                    ratio(_LAST, f"{name}.mean", _FIRST),
                    holds=at_most(0.9),
                    partly=below(1),
                    unit="times",
                )
                for name in FIVE
            ),
            Claim(
                "because batches grow (answers per slice, 16 cores to 2)",
                "overhead is spread over more tuples (6.3.2.2)",
                _batches,
                holds=at_least(1.1),
                partly=above(1),
                unit="times",
            ),
        ),
        picture=Lines(
            x="cores",
            y="response time, ms",
            series={name: {cores: (str(cores), f"{name}.mean") for cores in CORES} for name in FIVE},
            log_y=True,
        ),
    )
)
