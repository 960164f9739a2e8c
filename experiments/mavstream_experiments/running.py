"""Runs experiments: every cell with every seed, in parallel processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import NamedTuple

from mavstream_experiments.metrics import metrics_of
from mavstream_experiments.model import Cell, Experiment, Metrics, Table
from mavstream_server.simulation import simulate


class Task(NamedTuple):
    """One simulation of an experiment."""

    experiment: str
    cell: str
    seed: int


Done = Callable[[Task], None]
"""Called after each task."""


def tasks_of(experiments: Iterable[Experiment], seeds: int | None = None) -> dict[Task, Cell]:
    """Return all simulations of the experiments; `seeds` replaces their own numbers of seeds."""
    return {
        Task(experiment.name, name, seed): cell
        for experiment in experiments
        for name, cell in experiment.cells.items()
        for seed in range(1, (seeds or experiment.seeds) + 1)
    }


def run(
    experiments: Iterable[Experiment],
    seeds: int | None = None,
    workers: int | None = None,
    done: Done = lambda task: None,
) -> dict[str, list[Table]]:
    """Run experiments and return for each a table of metrics per seed."""
    found: dict[str, dict[int, dict[str, Metrics]]] = {}
    for tasks, metrics in _simulations(tasks_of(experiments, seeds), workers or os.cpu_count() or 1):
        for task in tasks:
            found.setdefault(task.experiment, {}).setdefault(task.seed, {})[task.cell] = metrics
            done(task)
    return {name: [by_seed[seed] for seed in sorted(by_seed)] for name, by_seed in found.items()}


def _simulations(tasks: Mapping[Task, Cell], workers: int) -> Iterator[tuple[list[Task], Metrics]]:
    """Yield metrics as simulations end, with all tasks that share the simulation."""
    same: dict[tuple[str, int], list[Task]] = {}
    for task, cell in tasks.items():
        same.setdefault((repr(cell), task.seed), []).append(task)
    if workers == 1:
        for sharing in same.values():
            yield sharing, simulated(tasks[sharing[0]], sharing[0].seed)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = {
            pool.submit(simulated, tasks[sharing[0]], sharing[0].seed): sharing for sharing in same.values()
        }
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def simulated(cell: Cell, seed: int) -> Metrics:
    """Simulate a cell with a seed and return its metrics."""
    result = simulate(cell.workload, cell.policy, cell.options, seed=seed, **cell.settings)
    return {**metrics_of(result), **(cell.extra(result) if cell.extra else {})}
