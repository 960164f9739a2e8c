"""Series of runs: several seeds, and several values of a setting or of a parameter of the workload."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from mavstream_server.simulation.report.result import Result

SETTINGS = ("utilisation", "cores", "source_cores", "seconds")
"""What can be swept besides the parameters of a workload."""
COLUMNS = (
    "sweep", "value", "policy", "seed", "class", "priority", "answers", "mean_ms", "p50_ms", "p95_ms",
    "p99_ms", "weighted_mean_ms", "inversion_ratio", "starvation_ratio", "utilisation",
)  # fmt: skip
_MOST_VALUES = 1000
# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


class Sweep(NamedTuple):
    """The values of a setting that are tried one after the other."""

    name: str
    values: tuple[float, ...]


class Run(NamedTuple):
    """One simulation of a series."""

    value: float | None
    policy: str
    seed: int
    result: Result


def parse_sweep(text: str) -> Sweep:
    """Parse `utilisation=0.5:0.95:0.05` or `cores=1,2,4`; raises ValueError."""
    name, _, rest = text.partition("=")
    try:
        if ":" in rest:
            first, last, step = map(float, rest.split(":"))
            if step <= 0 or last < first or (last - first) / step > _MOST_VALUES:
                raise ValueError
            count = int((last - first) / step + 1e-9) + 1
            values = tuple(round(first + step * number, 12) for number in range(count))
        else:
            values = tuple(map(float, rest.split(",")))
    except ValueError:
        raise ValueError(f"expected NAME=FIRST:LAST:STEP or NAME=VALUE,VALUE, got {text!r}") from None
    return Sweep(name.strip(), values)


def run_series(
    compare: Callable[[float | None, int], Mapping[str, Result]], sweep: Sweep | None, seeds: Sequence[int]
) -> Iterator[Run]:
    """Yield the runs of all values and seeds; `compare` runs the policies for one of each."""
    for value in (None,) if sweep is None else sweep.values:
        for seed in seeds:
            for policy, result in compare(value, seed).items():
                yield Run(value, policy, seed, result)


def write_csv(file: IO[str], runs: Iterable[Run], sweep: Sweep | None) -> None:
    """Write a line for each class of each run."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        summary = run.result.summary()
        together = [summary[name] for name in COLUMNS[-4:]]
        for name, one in run.result.classes.items():
            times = [summary["classes"][name][key] for key in ("mean_ms", "p50_ms", "p95_ms", "p99_ms")]
            head = [None if sweep is None else sweep.name, run.value, run.policy, run.seed]
            writer.writerow([*head, name, one.priority, one.answers, *times, *together])


def summarised(runs: Sequence[Run]) -> Iterator[tuple[float | None, str, str, float | None, float | None]]:
    """Yield value, policy, class, mean of the seeds' mean response times, and half of its 95 % interval."""
    groups: dict[tuple[float | None, str, str], list[float]] = {}
    for run in runs:
        for name, one in run.result.classes.items():
            found = groups.setdefault((run.value, run.policy, name), [])
            if one.mean_ms is not None:
                found.append(one.mean_ms)
    for (value, policy, name), means in groups.items():
        half = None
        if len(means) > 1:
            t = _T[min(len(means) - 1, len(_T)) - 1]
            half = t * statistics.stdev(means) / len(means) ** 0.5
        yield value, policy, name, statistics.fmean(means) if means else None, half
