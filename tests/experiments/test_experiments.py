"""The experiments: declarations, runs, and the command."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.support.simulation.sample_experiment import experiment
from typer.testing import CliRunner

from mavstream_experiments.commands import app
from mavstream_experiments.model import Cell, Experiment
from mavstream_experiments.pictures_model import Bars, Boxes, Lines, Point
from mavstream_experiments.registry import experiments
from mavstream_experiments.running import run, simulated
from mavstream_server.simulation import load

EXPERIMENTS = experiments()
QUICK = [
    pytest.param(one.cells[name], id=f"{one.name}: {name}")
    for one in EXPERIMENTS.values()
    for name in one.quick
]


# Declarations


@pytest.mark.parametrize("one", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_an_experiment_has_a_complete_declaration(one: Experiment) -> None:
    assert one.seeds >= 5
    assert one.claims
    assert all(claim.text and claim.published for claim in one.claims)
    assert one.about
    assert one.calibration
    assert set(one.quick) <= set(one.cells)


@pytest.mark.parametrize("one", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_workloads_can_be_loaded_and_pictures_show_existing_cells(one: Experiment) -> None:
    for cell in one.cells.values():
        load(cell.workload, cell.settings.get("parameters"))
    match one.picture:
        case Lines(series=series):
            shown = _cells(point for points in series.values() for point in points.values())
        case Bars(groups=groups):
            shown = _cells(point for bars in groups.values() for point in bars.values())
        case Boxes(cells=cells):
            shown = set(cells.values())
        case None:
            shown = set()
    assert shown <= set(one.cells)


@pytest.mark.parametrize("cell", QUICK)
def test_quick_cells_give_the_same_answers_twice(cell: Cell) -> None:
    metrics = simulated(cell, seed=1)
    assert metrics["answers"] > 0
    assert metrics == {**simulated(cell, seed=1), "cpu": metrics["cpu"]}, "two runs with one seed differ"


def _cells(points: Iterable[Point]) -> set[str]:
    """Return the cells that points name; functions of all cells name none."""
    return {point[0] for point in points if isinstance(point, tuple)}


# Running


def test_cells_shared_by_experiments_are_run_once() -> None:
    done = []
    first, second = experiment("first"), experiment("second")
    found = run([first, second], seeds=2, workers=1, done=done.append)
    assert [len(found[name]) for name in ("first", "second")] == [2, 2]
    for seed in (0, 1):
        assert found["first"][seed]["only"] is found["second"][seed]["only"]
    assert found["first"][0]["only"]["mean"] != found["first"][1]["only"]["mean"]
    assert len(done) == 4


def test_several_processes_give_the_same_as_one() -> None:
    one = experiment()
    alone, spread = (run([one], seeds=2, workers=workers)["made-up"] for workers in (1, 2))
    for mine, theirs in zip(alone, spread, strict=True):
        assert {**mine["only"], "cpu": 0} == {**theirs["only"], "cpu": 0}


# The command


def test_the_list_command_names_all_experiments() -> None:
    done = CliRunner().invoke(app, ["list", "--json"])
    assert done.exit_code == 0
    assert [one["name"] for one in json.loads(done.stdout)] == list(EXPERIMENTS)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "nothing-like-it"], "unknown experiment 'nothing-like-it'; there are: "),
        (["run"], "name the experiments to run"),
        (["run", "--all", "cqc-figure-4"], "name the experiments to run"),
    ],
)
def test_bad_arguments_are_refused(arguments: list[str], complaint: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert complaint in done.stderr


@pytest.mark.long
def test_an_experiment_runs_from_the_command(tmp_path: Path) -> None:
    arguments = ["run", "cqc-figure-4", "--seeds", "1", "--workers", "1", "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    entries = json.loads(done.stdout)
    assert {one["experiment"] for one in entries} == {"cqc-figure-4"}
    assert {one["verdict"] for one in entries} == {"undecided"}, "one seed decides nothing"
    assert (tmp_path / "cqc-figure-4.png").exists()
