"""Running experiments: cells times seeds, spread over the cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import NamedTuple

from mavstream_experiments.figures import figures_of
from mavstream_experiments.model import Cell, Experiment, Figures, Table
from mavstream_server.simulation import simulate


class Task(NamedTuple):
    """One simulation of an experiment."""

    experiment: str
    cell: str
    seed: int


Done = Callable[[Task], None]


def tasks_of(experiments: Iterable[Experiment], seeds: int | None = None) -> dict[Task, Cell]:
    """Return all simulations that the experiments take; `seeds` instead of their own numbers."""
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
    """Run experiments; returns for each a table of figures per seed. `done` is told of every task."""
    found: dict[str, dict[int, dict[str, Figures]]] = {}
    for tasks, figures in _figures(tasks_of(experiments, seeds), workers or os.cpu_count() or 1):
        for task in tasks:
            found.setdefault(task.experiment, {}).setdefault(task.seed, {})[task.cell] = figures
            done(task)
    return {name: [by_seed[seed] for seed in sorted(by_seed)] for name, by_seed in found.items()}


def _figures(tasks: Mapping[Task, Cell], workers: int) -> Iterator[tuple[list[Task], Figures]]:
    """Yield figures as they come, each with all tasks that want them: experiments have cells in common."""
    same: dict[tuple[str, int], list[Task]] = {}
    for task, cell in tasks.items():
        same.setdefault((repr(cell), task.seed), []).append(task)
    if workers == 1:
        for wanting in same.values():
            yield wanting, simulated(tasks[wanting[0]], wanting[0].seed)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = {
            pool.submit(simulated, tasks[wanting[0]], wanting[0].seed): wanting for wanting in same.values()
        }
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def simulated(cell: Cell, seed: int) -> Figures:
    """Return the figures of one simulation."""
    result = simulate(cell.workload, cell.policy, cell.options, seed=seed, **cell.settings)
    return {**figures_of(result), **(cell.extra(result) if cell.extra else {})}
