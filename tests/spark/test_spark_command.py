"""The command `mavstream data`: its datasets, output and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.spark.session import SEED
from typer.testing import CliRunner

from mavstream_protocol import InvalidPlan
from mavstream_protocol.manifest import InvalidDataset, Manifest
from mavstream_spark.commands import app
from mavstream_spark.errors import InvalidJob, NoSpark, UnreadableInput
from mavstream_spark.java import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ("tests.support.spark.fixtures",)
pytestmark = pytest.mark.xdist_group("spark")

PLAN: dict[str, Any] = {
    "root": "hot",
    "nodes": {
        "in": {"op": "source", "stream": "temperature"},
        "hot": {"op": "select", "input": "in", "where": "celsius > 45"},
    },
}


def data(*words: str | Path) -> str:
    """Run the command in the shared session; returns its output."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def fake_java(folder: Path, says: str) -> None:
    (folder / "bin").mkdir()
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "mavstream", "data", "generate", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "PATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert "there is no 'java' on the PATH: install Java 17 or newer" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "needs Java 17 or newer, but '.*' is Java 11: install"),
        ('java version "1.8.0_392"', "is Java 8: install"),
        ("what?", "-version' says 'what[?]': install Java 17"),
    ],
)
def test_an_old_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, complaint: str
) -> None:
    fake_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoSpark, match=complaint):
        check_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoSpark, match=r"does not run .* or point JAVA_HOME to it"):
        check_java()


def test_java_17_and_later_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "21" 2023-09-19')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert check_java() == 21


@pytest.mark.long
def test_the_command_generates_plain_streams_and_shows_them(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "plain"
    words = ("--workload", "plain", "--streams", "1", "--rate", "100@2s,50@2s")
    output = data("generate", *words, "--out", out)
    assert "readings1" in output
    assert f"the dataset is in {out}" in output
    manifest = Manifest.load(out)
    assert manifest.options == {"streams": 1, "rate": "100@2s,50@2s", "start": "2026-03-01", "seed": 0}
    assert data("inspect", out, "--verify").count("readings1") == 1
    assert json.loads(data("inspect", out, "--json")) == json.loads((out / "manifest.json").read_text())


@pytest.mark.long
def test_the_command_answers_plans(spark: SparkSession, homes: Path, tmp_path: Path) -> None:
    (tmp_path / "2-hot.json").write_text(json.dumps({"name": "hot", "plan": PLAN}))
    result = json.loads(
        data("expected", homes, "--plan", tmp_path / "2-hot.json", "--out", tmp_path / "a", "--json")
    )
    entry = result["streams"]["_2_hot"]
    assert result["kind"] == "answers"
    assert [field["name"] for field in entry["schema"]] == ["at", "home", "room", "celsius"]
    assert entry["rows"] > 20
    assert Manifest.load(tmp_path / "a").streams["_2_hot"].checksum == entry["checksum"]


@pytest.mark.long
def test_the_command_converts_csv_with_inferred_fields(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "rooms.csv"
    source.write_text("at,room,celsius\n2026-03-01T00:00:01Z,hall,20.5\n2026-03-01T00:00:00Z,hall,warm\n")
    words = ("--fields", "at timestamp, room string, celsius float")
    output = data("convert", source, *words, "--out", tmp_path / "out")
    assert "1 unreadable celsius" in output
    assert Manifest.load(tmp_path / "out").streams["rooms"].rows == 1


@pytest.mark.long
def test_a_home_is_drawn(homes: Path, tmp_path: Path) -> None:
    data("inspect", homes, "--picture", tmp_path / "day.png", "--home", "2")
    assert (tmp_path / "day.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(InvalidJob, match="no rows on 2026-04-01: give a day from 2026-03-01 to 2026-03-01"):
        data("inspect", homes, "--picture", tmp_path / "x.png", "--day", "2026-04-01")
    with pytest.raises(InvalidJob, match="home 9 has no rows in 'motion'"):
        data("inspect", homes, "--picture", tmp_path / "x.png", "--home", "9")
    assert not (tmp_path / "x.png").exists()
    assert Manifest.load(homes).options["seed"] == SEED


@pytest.mark.long
def test_errors_name_the_object_and_what_to_do(spark: SparkSession, homes: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidDataset, match="not a complete dataset: give the folder that a finished"):
        data("inspect", tmp_path)
    with pytest.raises(InvalidJob, match="no queries given: use --plan FILE"):
        data("expected", homes, "--out", tmp_path / "out")
    for name in ("a-b.json", "a_b.json"):
        (tmp_path / name).write_text(json.dumps(PLAN))
    with pytest.raises(InvalidJob, match="two queries would be named 'a_b'"):
        data("expected", homes, f"--plan={tmp_path}/a-b.json", f"--plan={tmp_path}/a_b.json", "--out", "x")
    with pytest.raises(InvalidJob, match=r"plan file '.*' cannot be read"):
        data("expected", homes, "--plan", tmp_path / "none.json", "--out", tmp_path / "out")
    with pytest.raises(UnreadableInput, match="cannot be read: No such file"):
        data("convert", tmp_path / "none.csv", "--out", tmp_path / "out")
    wrong = {"root": "hot", "nodes": {**PLAN["nodes"], "hot": {**PLAN["nodes"]["hot"], "where": "x > 1"}}}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    with pytest.raises(InvalidPlan, match="nodes/hot/where: there is no field `x`"):
        data("expected", homes, "--plan", tmp_path / "wrong.json", "--out", tmp_path / "out")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "manifest.json").write_text('{"version": 9}')
    with pytest.raises(InvalidDataset, match="is not a manifest of version 1"):
        data("inspect", tmp_path / "data")
