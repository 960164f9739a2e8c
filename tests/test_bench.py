"""The benchmark command on little data: its metrics have the right shape and its answers are checked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from websockets.frames import Frame
from websockets.protocol import State

from mavstream_server.columns.batch import Batch

ROOT = Path(__file__).parents[1]
TIMES = {"tuples_per_s", "numpy_tuples_per_s", "ratio", "correct"}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the package importable: it is run from the project root and never installed."""
    monkeypatch.syspath_prepend(str(ROOT))


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)


def test_engine_benchmark_prints_one_object_with_checked_metrics() -> None:
    done = run_bench("engine", "--json", "--scale", "0.03", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    metrics: dict[str, dict[str, Any]] = json.loads(done.stdout)
    assert list(metrics) == ["q1", "q2", "q3", "q1_frames_of_16"]
    for name, metric in metrics.items():
        assert set(metric) == TIMES | ({"peak_rss_mb_above_start"} if name == "q3" else set())
        assert metric["correct"] is True
        assert all(metric[key] > 0 for key in TIMES)


def test_engine_benchmark_prints_a_line_per_query(bench: None, capsys: pytest.CaptureFixture[str]) -> None:
    from bench.__main__ import main

    assert main(["engine", "--scale", "0.01", "--repeat", "1"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "query",
        "q1",
        "q2",
        "q3",
        "q1_frames_of_16",
    ]


def test_turns_benchmark_checks_the_answers_of_all_queries(
    bench: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.__main__ import main

    assert main(["turns", "--json", "--scale", "0.01", "--rounds", "2"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert len(metrics) == 3
    assert all(each["correct"] and each["us_per_query_and_row"] > 0 for each in metrics.values())


def test_sql_benchmark_compares_sql_with_plans() -> None:
    metrics = json.loads(run_bench("sql", "--json", "--rounds", "2").stdout)
    for query in ("select", "aggregate", "join"):
        assert metrics[query]["validate_sql_ms"]["p50"] > metrics[query]["parse_ms"]["p50"] > 0
    assert metrics["goal_ms"] == 15


def test_profile_lists_the_functions_that_the_engine_calls(
    bench: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.__main__ import main

    assert main(["engine", "--scale", "0.01", "--profile", "q2"]) == 0
    shown = capsys.readouterr().out
    assert "cumtime" in shown
    assert "aggregate" in shown


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["engine", "--repeat", "0"], "at least 1 run is needed, got 0"),
        (["engine", "--scale", "0"], "at least 0.001 is needed, got 0"),
        (["engine", "--profile", "q9"], "invalid choice: 'q9'"),
        (["isolation", "--seconds", "0.5"], "at least 1 second is needed, got 0.5"),
        (["unknown"], "invalid choice: 'unknown'"),
    ],
)
def test_invalid_arguments_are_refused(
    bench: None, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    from bench.__main__ import main

    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert complaint in capsys.readouterr().err


def test_data_is_the_same_for_the_same_seed(bench: None) -> None:
    from bench.workload.readings import readings

    first, again, other = readings(500, 1), readings(500, 1), readings(500, 2)
    assert all((first[name].values == again[name].values).all() for name in first)
    assert (first["ts"].values != other["ts"].values).any()
    assert (first["ts"].values[1:] >= first["ts"].values[:-1]).all()


@pytest.mark.parametrize("wrong", ["missing", "double", "value"])
def test_a_wrong_answer_is_detected(bench: None, tmp_path: Path, wrong: str) -> None:
    from bench.engine.answers import loop_answer
    from bench.workload.queries import Q1
    from bench.workload.readings import write_stream
    from bench.workload.reference import Reference

    stream = write_stream(tmp_path, "readings", 2000, 0, 100)
    reference = Reference(Q1, {stream.name: stream.arrow()})
    right = loop_answer(Q1, Q1.loop(stream.reader()))
    assert reference.agrees(right)
    rest = right.slice(1)
    changed = right.slice(0, 1).set_column(2, "fahrenheit", pa.array([0.0]))
    answers = {
        "missing": rest,
        "double": pa.concat_tables([rest, rest.slice(0, 1)]),
        "value": pa.concat_tables([rest, changed]),
    }
    assert not reference.agrees(answers[wrong])


def test_a_wrong_answer_is_reported_without_times_and_fails_the_command(
    bench: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.__main__ import main
    from bench.engine import engine
    from bench.workload.queries import Q1, Q2

    nodes = {**Q1.nodes, "hot": {"op": "select", "input": "in", "where": "temperature > 20"}}
    wrong = replace(Q1, nodes=nodes)
    monkeypatch.setattr(engine, "CASES", {"q1": engine.Case(wrong), "q2": engine.Case(Q2)})
    assert main(["engine", "--json", "--scale", "0.01", "--repeat", "1"]) == 1
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["q1"] == dict.fromkeys(TIMES - {"correct"}) | {"correct": False}
    assert metrics["q2"]["correct"] is True


def test_decisions_are_timed_for_every_size(bench: None, capsys: pytest.CaptureFixture[str]) -> None:
    from bench.__main__ import main

    assert main(["decisions", "--json", "--decisions", "60", "--policy", "rr", "--policy", "cqc"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert set(metrics["policies"]) == {"rr", "cqc"}
    for metric in metrics["policies"].values():
        assert set(metric) == {"300_queries_us", "100_operators_us", "10000_operators_us", "ratio"}
        assert all(value > 0 for value in metric.values())
    assert set(metrics["overhead"]) == {"q1", "q2", "q3"}
    for by_train in metrics["overhead"].values():
        assert list(by_train) == ["256 rows", "1,024 rows", "4,096 rows", "by time"]
        (answers,) = {metric["answers"] for metric in by_train.values()}
        assert answers > 0
        for metric in by_train.values():
            assert set(metric) == {"answers", "slices", "share", "mean_slice_us"}
            assert metric["slices"] > 0
            assert metric["mean_slice_us"] > 0
            assert 0 < metric["share"] < 1


def test_decisions_are_not_timed_if_answers_depend_on_the_train(
    bench: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.__main__ import main
    from bench.scheduling import decisions

    class LosingSink(decisions.CountingSink):
        """Loses a row of every batch, so that its count depends on how many batches there are."""

        def append(self, batch: Batch, now: int, positions: Sequence[int]) -> None:
            self.offset += batch.size - 1

    monkeypatch.setattr(decisions, "CountingSink", LosingSink)
    monkeypatch.setattr(decisions, "_WORK", {"q1": decisions.Q1})
    with pytest.raises(RuntimeError, match="the same number"):
        main(["decisions", "--decisions", "1", "--policy", "rr"])


@pytest.mark.long
def test_classes_are_measured_side_by_side_and_nothing_is_lost() -> None:
    arguments = ("--seconds", "0.7", "--rate", "2000", "--workload", "C", "--policy", "hr", "--policy", "cqc")
    done = run_bench("classes", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)["C"]
    assert metrics["tuples_per_s_per_stream"] == 2000
    for policy in ("hr", "cqc"):
        assert metrics[policy]["lost"] == 0
        assert 0 < metrics[policy]["busy"] <= 1
        assert set(metrics[policy]["falls_behind"]) <= {"H", "C", "N"}
        for name in ("H", "C", "N"):
            assert 0 < metrics[policy][name]["mean_ms"] <= metrics[policy][name]["p99_ms"] * 1.1


@pytest.mark.long
def test_sharing_compares_many_queries_with_one() -> None:
    done = run_bench("sharing", "--json", "--rows", "30000", "--queries", "5", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert list(metrics) == ["select", "window"]
    for prefix in metrics.values():
        assert prefix["correct"] is True
        assert all(prefix[mode]["ratio"] > 0 for mode in ("on", "off"))


@pytest.mark.long
def test_isolation_shows_an_important_class_alone_and_beside_an_overload() -> None:
    arguments = ("--seconds", "1", "--repeat", "1", "--capacity", "15000", "--policy", "cqc", "--stages")
    done = run_bench("isolation", "--json", *arguments, "--policy", "unheard_of")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert list(metrics["policies"]) == ["rr", "cqc"]
    assert metrics["skipped"] == ["unheard_of: not run, there is no such policy"]
    for policy in metrics["policies"].values():
        assert policy["lost"] == 0
        for phase in ("alone", "beside"):
            assert 0 < policy[phase]["p50"] <= policy[phase]["p99"]
            assert set(policy[phase]["by_kind"]) == {"select", "aggregate", "join"}
            assert len(policy[phase]["stages_ms"]) == 4
        assert set(policy["beside"]["send_lag_ms"]) == {"H", "N"}
    assert metrics["policies"]["rr"]["n_of_rr"] == 1


@pytest.mark.long
def test_deadlines_are_counted_live_and_simulated() -> None:
    arguments = ("--seconds", "1", "--rate", "500", "--load", "0.7", "--policy", "rr", "--policy", "cqc")
    done = run_bench("deadlines", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert metrics["targets_ms"][0] == 5
    assert metrics["targets_ms"][-1] == 2000
    assert len(metrics["targets_ms"]) == 12
    for policy in ("rr", "cqc"):
        one = metrics["loads"]["0.7"][policy]
        assert one["live"]["lost"] == 0
        for kind in ("live", "simulated"):
            assert 0 <= one[kind]["queries"] <= 1
            assert len(one[kind]["by_query"]) == 12


@pytest.mark.long
def test_agreement_reports_live_and_simulated_latency_per_class() -> None:
    done = run_bench("agreement", "--json", "--seconds", "1", "--policy", "cqc", "--utilisation", "0.5")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)["0.5"]["cqc"]
    assert set(shown["classes"]) == {"H", "C", "N"}
    for metric in shown["classes"].values():
        assert metric["live_ms"] > 0
        assert metric["simulated_ms"] > 0


@pytest.mark.long
def test_targets_are_told_with_the_optimizer_and_without() -> None:
    done = run_bench("targets", "--json", "--seconds", "4", "--capacity", "15000")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    for run in ("on", "off"):
        assert 0 <= metrics[run]["kept"] <= 1
        assert metrics[run]["lost"] == 0
    assert metrics["off"]["actions"] == metrics["off"]["shed"] == 0


@pytest.mark.long
def test_watching_measures_the_cost_of_monitoring_targets() -> None:
    done = run_bench("watching", "--json", "--seconds", "2", "--queries", "3")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert metrics["used"]["with"] > 0


def test_a_row_travels_in_the_first_frame_that_is_sent_when_it_is_due(bench: None) -> None:
    from bench.load.schedule import Schedule

    schedule = Schedule(((200.0, 0.5), (0.0, 0.2), (1000.0, 0.3)), tick=0.01)
    assert len(schedule.dues) == 400
    assert (schedule.dues[1:] >= schedule.dues[:-1]).all()
    assert not ((schedule.dues > 500_000) & (schedule.dues < 700_000)).any()
    sent = schedule.frame_dues[schedule.frame_of_row] * 1e6
    assert (schedule.dues <= sent + 1).all()
    assert (schedule.dues > sent - 10_001).all()
    batches = list(schedule.batches())
    assert [batch.num_rows for batch in batches] == np.bincount(schedule.frame_of_row).tolist()
    times = np.concatenate([batch["ts"].cast(pa.int64()).to_numpy() for batch in batches])
    assert (times - times[0] == schedule.dues - schedule.dues[0]).all()


def test_frames_are_encoded_as_the_server_reads_them(bench: None) -> None:
    from bench.load.schedule import Schedule
    from websockets.frames import Opcode
    from websockets.server import ServerProtocol

    from mavstream_protocol.wire.envelope import unseal

    schedule = Schedule.steady(1000, 0.1, tick=0.01)
    server = ServerProtocol(state=State.OPEN)
    for message in schedule.messages("readings"):
        server.receive_data(message)
    frames = server.events_received()
    assert all(isinstance(frame, Frame) and frame.opcode is Opcode.BINARY for frame in frames)
    headers = [json.loads(unseal(bytes(frame.data))[0]) for frame in frames if isinstance(frame, Frame)]
    numbers = range(1, len(schedule.frame_dues) + 1)
    assert headers == [{"stream": "readings", "sequence": number} for number in numbers]


@pytest.mark.parametrize("capacity", [1_000.0, 23_456.0, 1e6])
def test_the_highest_rate_is_found_within_five_percent(bench: None, capacity: float) -> None:
    from bench.load.capacity import highest_rate

    found = highest_rate(lambda rate: rate <= capacity, least=1_000.0)
    assert 0.95 * capacity <= found <= capacity


def test_medians_are_taken_of_each_number(bench: None) -> None:
    from bench.scheduling.isolation_report import medians

    runs = [{"policy": "cqc", "p99": p99, "of": {"kind": lost}} for p99, lost in ((9, 0), (7, 3), (20, 1))]
    assert medians(runs) == {"policy": "cqc", "p99": 9, "of": {"kind": 1}}


def test_an_answer_counts_from_the_row_that_completes_it(bench: None) -> None:
    from bench.load.answer_times import FedStream
    from bench.load.receiver import Received
    from bench.load.schedule import Schedule
    from bench.load.sender import Sent
    from bench.workload.class_queries import class_queries
    from bench.workload.readings import BEGIN

    schedule = Schedule.steady(100, 3, tick=0.01)
    begin = 1_000.0
    sent = Sent(1, 1, np.empty(0), np.empty(0), 0.0, 0.0)
    aggregate = next(query for query in class_queries("readings") if query.kind == "aggregate")
    ends = np.array([200_000, 2_000_000])
    completing = schedule.dues[np.searchsorted(schedule.dues, ends)]
    times = (begin * 1e9 + completing * 1000 + 7_000_000).astype(np.int64)
    table = pa.table({"window_end": pa.array(BEGIN + ends).cast(pa.timestamp("us"))})
    taken = FedStream(schedule, begin, sent).latencies(aggregate, Received(table, times))
    assert taken.tolist() == [7.0], "the first one was due in the second that is not measured"


def test_costs_of_fused_operators_add_up_to_the_time_of_their_slices(bench: None) -> None:
    from bench.simulation.fitting import Costs, fused_costs

    from mavstream_server.engine.slices.trace import TracedSlice

    alone = {
        ("q", "source"): Costs(10.0, 1.0, 1.0, 0.0, 1.0),
        ("q", "select"): Costs(30.0, 2.0, 0.5, 0.0, 1.0),
        ("q", "output"): Costs(20.0, 4.0, 1.0, 0.0, 1.0),
    }
    kinds = ("source", "select", "output")
    # A quarter of the time that they take alone: 60 us, and 1 + 2 + 0.5 * 4 us for each row.
    slices = [
        TracedSlice(0, 0, "q", "default", kinds, 5 * rows // 2, rows // 2, 250 * (60 + 5 * rows))
        for rows in (20, 40)
    ]
    scaled = fused_costs(slices, alone)
    assert {kind: (one.setup, one.cost) for (_, kind), one in scaled.items()} == {
        "source": (2.5, 0.25),
        "select": (7.5, 0.5),
        "output": (5.0, 1.0),
    }


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_spark_stream_benchmark_reads_every_row_from_both_sources() -> None:
    few = ("--rows", "30000", "--batch", "10000", "--rounds", "2")
    done = run_bench("spark-stream", "--json", "--only", "sources", *few)
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert set(metrics["sources"]) == {"mavstream", "files"}
    for source in metrics["sources"].values():
        for query in ("condition", "averages"):
            assert source[query]["input"] == 30_000
            assert source[query]["rows_per_s"] > 0
        assert source["latency_ms"]["rounds"] == 2
        assert source["latency_ms"]["counted"] == 33_000


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_spark_stream_benchmark_checks_the_answers_of_queries_on_spark() -> None:
    few = ("--rows", "30000", "--batch", "10000", "--rounds", "2", "--executors", "1")
    done = run_bench("spark-stream", "--json", "--only", "queries", *few)
    assert done.returncode == 0, done.stderr
    (queries,) = json.loads(done.stdout)["queries"].values()
    assert set(queries) == {"q1", "q2", "q3"}
    for query in queries.values():
        for side in ("mavstream", "plain"):
            assert all(query[side][key] > 0 for key in ("rows_per_s", "latency_ms", "p95_ms"))
