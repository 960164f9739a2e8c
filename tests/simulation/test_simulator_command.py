"""The command `mavstream simulate`, and the export of a server's queries."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from bench.simulation import simulator
from typer.testing import CliRunner, Result

from mavstream_protocol.classes import QueryClass
from mavstream_server.simulation import simulate
from mavstream_server.simulation.commands import app
from mavstream_server.simulation.workload.export import ExportFailed, workload_of

KEYS = {
    "classes",
    "weighted_mean_ms",
    "inversion_ratio",
    "starvation_ratio",
    "utilisation",
    "tuple_steps",
    "seconds",
}


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_json_output_has_the_metrics_and_nothing_else() -> None:
    done = call("A", "--policy", "hr", "--seconds", "0.2", "--seed", "3", "--json")
    assert done.exit_code == 0, done.output
    metrics = json.loads(done.stdout)
    assert set(metrics) == KEYS
    assert list(metrics["classes"]) == ["H", "C", "N"]
    assert set(metrics["classes"]["H"]) == {"mean_ms", "p50_ms", "p95_ms", "p99_ms"}
    result = simulate("A", "hr", seconds=0.2, seed=3)
    assert metrics["classes"]["H"]["mean_ms"] == pytest.approx(result.classes["H"].mean_ms, abs=1e-5)
    assert metrics["tuple_steps"] == result.tuple_steps
    assert metrics["seconds"] == 0.2


def test_settings_are_applied_to_the_run() -> None:
    done = call(
        *("5G_4", "--policy", "mrr", "--cores", "2", "--utilisation", "0.3", "--seconds", "0.1", "--json"),
        *("--parameter", "rate=300", "--sources", "direct", "--options", "{}"),
    )
    metrics = json.loads(done.stdout)
    result = simulate(
        "5G_4", "mrr", cores=2, utilisation=0.3, seconds=0.1, parameters={"rate": 300}, sources="direct"
    )
    assert metrics["utilisation"] == pytest.approx(result.utilisation, abs=1e-6)
    assert result.sources == "direct"


def test_several_policies_are_compared(tmp_path: Path) -> None:
    pictures = [tmp_path / "found.png", tmp_path / "found.svg"]
    for picture in pictures:
        done = call("D", "--compare", "rr, cqc,abd", "--seconds", "0.1", "--picture", str(picture))
        assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines() if line.split()[:1]][3:] == [
        "rr",
        "cqc",
        "abd",
    ]
    assert "class1 ms" in done.stdout
    assert pictures[0].read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in pictures[1].read_bytes()
    as_json = json.loads(call("D", "--compare", "rr,abd", "--seconds", "0.1", "--json").stdout)
    assert set(as_json) == {"rr", "abd"}
    assert set(as_json["rr"]) == KEYS


def test_a_run_is_shown_as_a_table() -> None:
    done = call("A", "--policy", "cqc", "--seconds", "0.1")
    assert "A under cqc, 1 core, sources per_class, 0.1 virtual seconds" in done.stdout
    assert "starvation ratio" in done.stdout


def test_a_workload_can_be_written_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    first = call("5G", "--policy", "abd", "--seconds", "0.1", "--json", "--save", str(file))
    again = call(str(file), "--policy", "abd", "--seconds", "0.1", "--json")
    assert first.exit_code == again.exit_code == 0, again.output
    assert json.loads(first.stdout) == json.loads(again.stdout)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["Q"], "unknown workload 'Q': it is neither a file nor one of 3D_6, 3E_6"),
        ([], "expected either a workload or --from-server; built-in workloads are: 3D_6"),
        (["A", "--policy", "best"], "unknown policy 'best'; known are: abd, amos"),
        (["A", "--policy", "rr", "--options", "[1]"], "--options: expected a JSON object, got '[1]'"),
        (["A", "--policy", "rr", "--options", '{"x": 1}'], "policy 'rr' has no option 'x': its options are"),
        (["A", "--sources", "never"], "--sources: expected one of policy, between_slices"),
        (["A", "--parameter", "rate"], "--parameter: expected NAME=NUMBER, got 'rate'"),
        (["A", "--parameter", "rate=3"], "parameters: unknown parameters: rate; known are: none"),
        (["A", "--picture", "a.gif"], "supported formats are .png and .svg"),
        (["--from-server", "http://127.0.0.1:9"], "the server at http://127.0.0.1:9 cannot be reached"),
    ],
)
def test_invalid_arguments_are_explained(arguments: list[str], complaint: str) -> None:
    done = call(*arguments)
    assert done.exit_code == 2
    assert complaint in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_the_benchmark_reports_its_times() -> None:
    parser = argparse.ArgumentParser()
    simulator.add_options(parser)
    arguments = ["--scale", "0.02", "--repeat", "1", "--workload", "A", "--policy", "rr"]
    outcome = simulator.run(parser.parse_args(arguments))
    assert outcome.correct
    metrics = outcome.metrics["A"]["rr"]
    assert {"tuple_steps_per_s", "seconds", "cpu_seconds"} <= set(metrics)
    assert metrics["tuple_steps_per_s"] == pytest.approx(
        metrics["tuple_steps"] / metrics["seconds"], rel=0.02
    )
    assert [line.split()[:2] for line in outcome.text.splitlines()] == [["workload", "policy"], ["A", "rr"]]


# Export


def operator(name: str, kind: str, cost: float, selectivity: float, tuples: int = 1000) -> dict[str, Any]:
    return {
        "name": name,
        "operator": kind,
        "cost_per_tuple_us": cost,
        "selectivity": selectivity,
        "tuples": tuples,
    }


PLACED = {
    "query": "pairs-1",
    "class": "vip",
    "operators": [
        operator("l", "source", 0.2, 1.0),
        operator("r", "source", 0.4, 1.0),
        operator("hot", "select", 2.0, 0.25),
        operator("parts", "split", 1.0, 1.0),
        operator("both", "join", 5.0, 0.5, tuples=0),
        operator("all", "union", 0.5, 1.0),
        operator("#output", "output", 1.0, 1.0),
    ],
    "edges": [
        {"from": "stream:readings", "to": "l"},
        {"from": "stream:doors", "to": "r"},
        {"from": "l", "to": "hot"},
        {"from": "r", "to": "parts"},
        {"from": "hot", "to": "both"},
        {"from": "parts", "to": "both", "output": "open"},
        {"from": "both", "to": "all"},
        {"from": "parts", "to": "all", "output": "else"},
        {"from": "all", "to": "#output"},
    ],
}


def test_queries_of_a_server_become_a_workload() -> None:
    ended = {"query": "gone", "class": "default", "operators": [], "edges": []}
    workload = workload_of(
        "here",
        {
            "vip": QueryClass.model_validate({"name": "vip", "priority": 6, "latency": "50ms"}),
            "default": QueryClass(name="default"),
        },
        {"readings": 1000.0, "doors": 50.0, "unread": 7.0},
        [PLACED, ended],
        {"policy": "cqc", "options": {"period_us": 5000}},
        {"pairs-1": 20_000},
    )
    assert {name: (part.priority, part.latency_us) for name, part in workload.classes.items()} == {
        "vip": (6, 50_000)
    }
    assert {name: part.rate for name, part in workload.streams.items()} == {"doors": 50, "readings": 1000}
    assert workload.sources.cost_us == pytest.approx(0.3)
    (query,) = workload.queries
    assert query.latency_us == 20_000
    assert query.operators is not None
    assert query.operators["both"].inputs == ("hot", "parts")
    assert query.operators["hot"].inputs == ("readings",)
    assert query.operators["parts"].selectivity == 0.5, "each of its two readers gets half"
    assert any("pairs-1/both" in note for note in workload.fitted)
    result = simulate(workload, "cqc", seconds=0.5)
    assert result.options == {"period_us": 5000}
    # 250 hot rows and 25 of the doors at the join, of which half pass; and 25 doors on the other path.
    assert result.classes["vip"].answers == pytest.approx(0.5 * (0.5 * (250 + 25) + 25), rel=0.2)


def test_a_server_without_queries_or_rows_is_refused() -> None:
    with pytest.raises(ExportFailed, match="here has no running queries"):
        workload_of("here", {}, {"s": 1.0}, [], {})
    with pytest.raises(ExportFailed, match="here received no rows during the measurement"):
        workload_of("here", {}, {"readings": 0.0}, [PLACED], {})
