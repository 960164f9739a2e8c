"""The report of the experiments: page, JSON file and pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from math import nan
from pathlib import Path

from tests.support.simulation.sample_experiment import experiment, tables

from mavstream_experiments.model import Experiment, Table
from mavstream_experiments.pictures_model import Bars, Boxes, Lines
from mavstream_experiments.report import PAGE, VERDICTS, write


def written(directory: Path, one: Experiment, *gains: float) -> tuple[dict[str, object], str]:
    """Write the report of one experiment and return its entry and the page."""
    write(directory, {one.name: one}, {one.name: tables(*gains)}, pictures=False)
    (entry,) = json.loads((directory / VERDICTS).read_text())
    return entry, (directory / PAGE).read_text()


def test_page_and_json_have_claims_and_findings(tmp_path: Path) -> None:
    entry, page = written(tmp_path, experiment(), 2.0, 2.1, 1.9)
    assert entry["experiment"] == "made-up"
    assert entry["claim"] == "it gains"
    assert entry["published"] == "3 times"
    assert entry["measured"] == 2
    assert entry["interval"] == [1.752, 2.248]
    assert entry["verdict"] == "not reproduced"
    row = "| it gains † | 3 times | at least 3 times | 2 times (1.752 to 2.248) | not reproduced |"
    assert row in page
    assert "1 claims that a release is held to (marked †), 0 hold and 1 do not" in page


def test_the_summary_counts_every_verdict(tmp_path: Path) -> None:
    known = {name: experiment(name) for name in ("a", "b", "c", "d")}
    known["e"] = experiment("e", fitted=True)
    found = {
        "a": tables(4.0, 4.1, 3.9),
        "b": tables(2.1, 4.1, 3.1),
        "c": tables(2.0, 2.1, 1.9),
        "d": tables(nan, nan, nan),
        "e": tables(4.0, 4.1, 3.9),
    }
    write(tmp_path, known, found, pictures=False)
    page = (tmp_path / PAGE).read_text()
    assert "| paper | claims | reproduced | partly | undecided | not reproduced | fitted | untested |" in page
    assert "| A paper | 5 | 1 | 0 | 1 | 1 | 1 | 1 |" in page
    assert "5 claims that a release is held to (marked †), 2 hold and 3 do not" in page


def test_a_claim_that_no_seed_could_test_is_reported_with_the_reason(tmp_path: Path) -> None:
    entry, page = written(tmp_path, experiment(needs="something to gain"), nan, nan, nan)
    assert entry["verdict"] == "untested"
    assert entry["measured"] is None
    assert "| no seed has something to gain | untested |" in page


def test_a_claim_that_some_seeds_could_test_is_reported_with_their_number(tmp_path: Path) -> None:
    entry, page = written(tmp_path, experiment(needs="something to gain"), 4.0, nan, 4.1, 3.9, nan)
    assert (entry["seeds"], entry["measured_seeds"]) == (5, 3)
    assert "| 4 times (3.752 to 4.248), 3 of 5 seeds | reproduced |" in page


def test_findings_of_a_repeated_experiment_are_replaced_and_others_kept(tmp_path: Path) -> None:
    known = {name: experiment(name) for name in ("first", "second")}
    write(tmp_path, known, {name: tables(4.0, 4.1, 3.9) for name in known}, pictures=False)
    write(tmp_path, known, {"second": tables(1.0, 1.1, 0.9)}, pictures=False)
    verdicts = {one["experiment"]: one["verdict"] for one in json.loads((tmp_path / VERDICTS).read_text())}
    assert verdicts == {"first": "reproduced", "second": "not reproduced"}


def test_a_removed_experiment_leaves_the_report(tmp_path: Path) -> None:
    known = {name: experiment(name) for name in ("first", "second")}
    write(tmp_path, known, {name: tables(4.0) for name in known}, pictures=False)
    write(tmp_path, {"second": known["second"]}, {}, pictures=False)
    assert [one["experiment"] for one in json.loads((tmp_path / VERDICTS).read_text())] == ["second"]


def test_a_picture_is_drawn_for_each_kind(tmp_path: Path) -> None:
    kinds = ("p10", "p25", "p50", "p75", "p90", "mean")
    metrics = {f"H.{kind}": 1.0 + index for index, kind in enumerate(kinds)}
    found: list[Table] = [{"only": {"gain": gain, **metrics}} for gain in (2.0, 3.0, 4.0)]
    pictures = (
        Lines("x", "gain", {"ours": {1.0: ("only", "gain"), 2.0: ("only", "gain")}}),
        Bars("gain", {"A": {"ours": ("only", "gain")}}),
        Boxes({"ours": "only"}, ("H",)),
    )
    known = {
        f"made-up-{number}": replace(experiment(f"made-up-{number}"), picture=picture)
        for number, picture in enumerate(pictures)
    }
    write(tmp_path, known, dict.fromkeys(known, found), pictures=True)
    for name in known:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"({name}.png)" in (tmp_path / PAGE).read_text()
