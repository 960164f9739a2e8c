"""`mavstream simulate` with policies of one's own, several seeds and several values."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from tests.support.commands.in_process import command

from mavstream_server.scheduling.registry import POLICIES
from mavstream_server.simulation.series import Sweep, parse_sweep

MINE = """
from typing import ClassVar

from mavstream_server.scheduling.policies.rr import RoundRobin


class Mine(RoundRobin):
    \"\"\"Round robin under another name.\"\"\"

    name: ClassVar = "mine"


class NoPolicy:
    pass
"""
RUN = ("simulate", "5G", "--seconds", "1")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_policies.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    POLICIES.pop("mine", None)
    sys.modules.pop("own_policies", None)


@pytest.mark.parametrize(
    ("text", "values"),
    [("utilisation=0.5:0.7:0.1", (0.5, 0.6, 0.7)), ("cores=1,2,4", (1, 2, 4)), ("x=3:3:1", (3,))],
)
def test_values_are_a_range_or_a_list(text: str, values: tuple[float, ...]) -> None:
    assert parse_sweep(text) == Sweep(text.partition("=")[0], values)


@pytest.mark.parametrize("text", ["cores", "cores=", "cores=a", "x=1:2", "x=2:1:1", "x=1:2:0", "x=0:1:1e-9"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected NAME=FIRST:LAST:STEP"):
        parse_sweep(text)


@pytest.mark.usefixtures("own")
def test_a_policy_of_ones_own_is_compared() -> None:
    done = command(*RUN, "--compare", "rr,own_policies:Mine", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"rr", "mine"}
    assert found["mine"]["tuple_steps"] > 0


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("own_policies:Nothing", "has no class 'Nothing'"),
        ("own_policies:NoPolicy", "is no subclass of"),
        ("no_such_module:Mine", "cannot be imported"),
    ],
)
def test_what_is_no_policy_is_explained(text: str, words: str) -> None:
    done = command(*RUN, "--policy", text)
    assert done.returncode == 2
    assert words in done.stderr


def test_runs_of_several_seeds_and_values_are_written(tmp_path: Path) -> None:
    options = ("--compare", "rr,hr", "--seeds", "2", "--seed", "7", "--sweep", "utilisation=0.5,0.9")
    file = tmp_path / "runs.csv"
    done = command(*RUN, *options, "--csv", str(file))
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    runs = {(row["value"], row["policy"], row["seed"]) for row in rows}
    assert runs == {(value, name, seed) for value in ("0.5", "0.9") for name in ("rr", "hr") for seed in "78"}
    assert {row["sweep"] for row in rows} == {"utilisation"}
    summary = json.loads(command(*RUN, *options, "--json").stdout)
    assert {(one["value"], one["policy"]) for one in summary} == {
        (v, p) for v in (0.5, 0.9) for p in ("rr", "hr")
    }
    first = [
        float(row["mean_ms"]) for row in rows if row["class"] == summary[0]["class"] and row["value"] == "0.5"
    ]
    assert summary[0]["mean_ms"] == pytest.approx(sum(first[:4:2]) / 2, rel=1e-5)
    assert "95 % confidence" in command(*RUN, *options).stdout
    assert command(*RUN, "--csv", "-").stdout.startswith("sweep,value,policy,seed,class")


def test_a_series_is_not_drawn() -> None:
    done = command(*RUN, "--seeds", "2", "--picture", "runs.png")
    assert (done.returncode, "one run of each policy" in done.stderr) == (2, True)
