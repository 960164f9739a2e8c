"""The experiments: what is declared, how verdicts follow from figures, and what the report keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from math import inf, isclose
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mavstream_experiments.commands import app
from mavstream_experiments.estimates import Verdict, estimate, findings
from mavstream_experiments.model import (
    Band,
    Cell,
    Claim,
    Experiment,
    Table,
    at_least,
    at_most,
    between,
)
from mavstream_experiments.pictures_model import Bars, Boxes, Lines, Point
from mavstream_experiments.registry import experiments
from mavstream_experiments.report import PAGE, VERDICTS, write
from mavstream_experiments.running import run, simulated
from mavstream_server.simulation import load

EXPERIMENTS = experiments()
QUICK = [
    pytest.param(one.cells[name], id=f"{one.name}: {name}")
    for one in EXPERIMENTS.values()
    for name in one.quick
]


THREE_TIMES = at_least(3)


def _gain(table: Table) -> float:
    return table["only"]["gain"]


def experiment(
    holds: Band = THREE_TIMES,
    partly: Band | None = None,
    name: str = "made-up",
) -> Experiment:
    claim = Claim("it gains", "3 times", _gain, holds, partly, unit="times", required=True)
    return Experiment(
        name=name,
        paper="A paper",
        title="A title",
        about="What is done.",
        calibration="Nothing was fitted.",
        cells={"only": Cell("A", "rr", settings={"seconds": 0.05})},
        claims=(claim,),
    )


def tables(*gains: float) -> list[Table]:
    return [{"only": {"gain": gain}} for gain in gains]


# What is declared


@pytest.mark.parametrize("one", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_an_experiment_says_what_it_is_held_against(one: Experiment) -> None:
    assert one.seeds >= 5
    assert one.claims
    assert all(claim.text and claim.published for claim in one.claims)
    assert one.about
    assert one.calibration
    assert set(one.quick) <= set(one.cells)


@pytest.mark.parametrize("one", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_its_workloads_can_be_loaded_and_its_picture_shows_cells_that_are_run(one: Experiment) -> None:
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
def test_quick_cells_answer(cell: Cell) -> None:
    figures = simulated(cell, seed=1)
    assert figures["answers"] > 0
    assert figures == {**simulated(cell, seed=1), "cpu": figures["cpu"]}, "two runs with one seed differ"


def _cells(points: Iterable[Point]) -> set[str]:
    """Return the cells that points are taken from; what is worked out from all cells names none."""
    return {point[0] for point in points if isinstance(point, tuple)}


# Verdicts


def test_an_interval_is_students() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 3
    assert isclose(found.high - found.mean, 2.776 * 2.5**0.5 / 5**0.5, rel_tol=1e-9)
    assert isclose(found.mean - found.low, found.high - found.mean)


def test_one_value_tells_nothing_about_its_spread() -> None:
    assert estimate([7.0]) == (7.0, -inf, inf)


@pytest.mark.parametrize(
    ("gains", "holds", "partly", "verdict"),
    [
        ((4.0, 4.1, 3.9), at_least(3), None, Verdict.REPRODUCED),
        ((2.0, 2.1, 1.9), at_least(3), None, Verdict.NOT),
        ((2.0, 2.1, 1.9), at_least(3), at_least(1.5), Verdict.PARTLY),
        ((2.0, 3.9, 2.9), at_least(3), None, Verdict.PARTLY),  # the interval reaches the band
        ((2.0,), at_least(3), None, Verdict.NOT),  # there is no interval
        ((4.0, 4.1, 3.9), at_most(3), None, Verdict.NOT),
        ((4.0, 4.1, 3.9), between(3.5, 4.5), None, Verdict.REPRODUCED),
        ((float("nan"), 4.0), at_least(3), None, Verdict.NOT),
    ],
)
def test_a_verdict_follows_from_mean_and_interval(
    gains: tuple[float, ...], holds: Band, partly: Band | None, verdict: Verdict
) -> None:
    (found,) = findings(experiment(holds=holds, partly=partly), tables(*gains))
    assert found.verdict is verdict


# Running


def test_cells_that_experiments_have_in_common_are_run_once() -> None:
    told = []
    first, second = experiment(name="first"), experiment(name="second")
    found = run([first, second], seeds=2, workers=1, done=told.append)
    assert [len(found[name]) for name in ("first", "second")] == [2, 2]
    for seed in (0, 1):
        assert found["first"][seed]["only"] is found["second"][seed]["only"]
    assert found["first"][0]["only"]["mean"] != found["first"][1]["only"]["mean"]
    assert len(told) == 4


def test_processes_find_the_same_as_one_process() -> None:
    one = experiment()
    alone, spread = (run([one], seeds=2, workers=workers)["made-up"] for workers in (1, 2))
    for mine, theirs in zip(alone, spread, strict=True):
        assert {**mine["only"], "cpu": 0} == {**theirs["only"], "cpu": 0}


# The report


def test_page_and_data_say_what_was_claimed_and_found(tmp_path: Path) -> None:
    one = experiment()
    write(tmp_path, {one.name: one}, {one.name: tables(2.0, 2.1, 1.9)}, pictures=False)
    (entry,) = json.loads((tmp_path / VERDICTS).read_text())
    assert entry["experiment"] == "made-up"
    assert entry["claim"] == "it gains"
    assert entry["published"] == "3 times"
    assert entry["measured"] == 2
    assert entry["interval"][0] < 2 < entry["interval"][1]
    assert entry["verdict"] == "not"
    page = (tmp_path / PAGE).read_text()
    assert "| it gains † | 3 times | at least 3 times | 2 times" in page
    assert "0 hold and 1 do not" in page


def test_findings_of_other_experiments_are_kept_and_those_of_a_repeated_one_replaced(tmp_path: Path) -> None:
    known = {name: experiment(name=name) for name in ("first", "second")}
    write(tmp_path, known, {name: tables(4.0, 4.1) for name in known}, pictures=False)
    write(tmp_path, known, {"second": tables(1.0, 1.1)}, pictures=False)
    verdicts = {one["experiment"]: one["verdict"] for one in json.loads((tmp_path / VERDICTS).read_text())}
    assert verdicts == {"first": "reproduced", "second": "not"}


def test_an_experiment_that_is_no_more_leaves_the_report(tmp_path: Path) -> None:
    known = {name: experiment(name=name) for name in ("first", "second")}
    write(tmp_path, known, {name: tables(4.0) for name in known}, pictures=False)
    write(tmp_path, {"second": known["second"]}, {}, pictures=False)
    assert [one["experiment"] for one in json.loads((tmp_path / VERDICTS).read_text())] == ["second"]


def test_a_picture_is_drawn_for_each_kind(tmp_path: Path) -> None:
    figures = {
        f"H.{name}": 1.0 + place for place, name in enumerate(("p10", "p25", "p50", "p75", "p90", "mean"))
    }
    found: list[Table] = [{"only": {"gain": gain, **figures}} for gain in (2.0, 3.0)]
    pictures = (
        Lines("x", "gain", {"ours": {1.0: ("only", "gain"), 2.0: ("only", "gain")}}),
        Bars("gain", {"A": {"ours": ("only", "gain")}}),
        Boxes({"ours": "only"}, ("H",)),
    )
    known = {
        f"made-up-{number}": replace(experiment(name=f"made-up-{number}"), picture=picture)
        for number, picture in enumerate(pictures)
    }
    write(tmp_path, known, dict.fromkeys(known, found), pictures=True)
    for name in known:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"({name}.png)" in (tmp_path / PAGE).read_text()


# The command


def test_the_list_names_all() -> None:
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
def test_what_cannot_be_run_is_refused(arguments: list[str], complaint: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert complaint in done.stderr


@pytest.mark.long
def test_an_experiment_runs_from_the_command(tmp_path: Path) -> None:
    arguments = ["run", "cqc-figure-4", "--seeds", "1", "--workers", "1", "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert all(one["experiment"] == "cqc-figure-4" for one in json.loads(done.stdout))
    assert (tmp_path / "cqc-figure-4.png").exists()
