"""The demo: its queries, its output, and its cleanup."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.support.servers.running_server import PATIENCE, running_server

from mavstream import Client, Flow
from mavstream_feeder.demo.queries import CLASSES
from mavstream_feeder.input.sample import STREAMS
from mavstream_protocol import StreamShape
from mavstream_protocol.plans.inference import infer

DEMO = [sys.executable, "-m", "mavstream", "demo"]


def demo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DEMO, *words], capture_output=True, text=True, check=False, timeout=180)


def kind_of(flow: Flow) -> str:
    plan = flow.build()
    ops = {node.op for node in plan.nodes.values()}
    return "join" if "join" in ops else "aggregate" if "aggregate" in ops else "select"


def test_the_queries_are_those_of_the_paper() -> None:
    kinds = Counter(kind_of(flow) for each in CLASSES for flow in each.queries.values())
    assert kinds == {"aggregate": 9, "join": 6, "select": 6}
    assert [(each.priority, len(each.queries)) for each in CLASSES] == [(6, 7), (3, 7), (1, 7)]
    for each in CLASSES:
        assert Counter(map(kind_of, each.queries.values())) == {"aggregate": 3, "join": 2, "select": 2}
    names = [name for each in CLASSES for name in each.queries]
    assert len(set(names)) == 21


def test_every_query_reads_the_sample_streams() -> None:
    shapes = {name: StreamShape(spec.schema(), spec.event_time) for name, spec in STREAMS.items()}
    for each in CLASSES:
        for flow in each.queries.values():
            infer(flow.build(), shapes)


def test_a_short_demo_ends_by_itself_and_prints_one_object() -> None:
    done = demo("--seconds", "3", "--json")
    assert done.stderr == ""
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert set(found) == {"classes", "tuples_in", "tuples_acked", "tuples_lost"}
    assert found["tuples_in"] == found["tuples_acked"] > 500
    assert found["tuples_lost"] == 0
    assert list(found["classes"]) == ["alarms", "control", "comfort"]
    for each in found["classes"].values():
        assert each["queries"] == 7
        assert each["results"] > 20
        latency = each["latency_ms"]
        assert set(latency) == {"mean", "p50", "p95", "p99"}
        assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"]


def test_the_demo_runs_on_an_existing_server_and_removes_its_queries(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, Client(server.url) as client:
        for _ in range(2):
            done = demo("--seconds", "3", "--url", server.url, "--policy", "wrr", "--rate", "150")
            assert done.stderr == ""
            assert done.returncode == 0
            assert all(name in done.stdout for name in ("alarms", "control", "comfort", "0 lost"))
        assert client.queries() == []
        assert client.scheduler().policy == "wrr"
        assert {info.name for info in client.streams()} == set(STREAMS)


def test_the_demo_can_watch_the_rows_of_another_feeder(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        words = ("feed", "--sample", "--stamp", "now", "--loop", "--rate", "100", "-o", "json")
        feeder = subprocess.Popen(
            [sys.executable, "-m", "mavstream", "--url", server.url, *words],
            stdout=subprocess.PIPE,
            text=True,
        )
        done = demo("--seconds", "4", "--url", server.url, "--no-feed", "--json")
        feeder.send_signal(signal.SIGINT)
        report, _ = feeder.communicate(timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["tuples_in"] > 0
        assert found["tuples_lost"] is None
        assert all(each["results"] > 0 for each in found["classes"].values())
        # After the first interrupt the feeder waits for its acks.
        assert feeder.returncode == 0
        fed = json.loads(report)
        assert fed["sent"] == fed["acked"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_demo_and_its_server(tmp_path: Path, number: signal.Signals) -> None:
    running = subprocess.Popen(
        [*DEMO, "--seconds", "100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert running.stdout is not None
    line = ""
    while "21 queries" not in line:
        line = running.stdout.readline()
        assert line, "it ended too early"
    running.send_signal(number)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    assert errors == ""
    assert list(tmp_path.iterdir()) == []
    host, port = line.split("http://")[1].strip().split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


@pytest.mark.long
def test_the_story_is_told_in_a_minute() -> None:
    done = demo("--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["tuples_lost"] == 0
    story = found["story"]
    acts = {each["act"]: each for each in story["acts"]}
    assert list(acts) == ["calm", "overload_baseline", "overload", "fire"]
    assert [each["policy"] for each in acts.values()] == ["cqc", "rr", "cqc", "cqc"]
    assert [each["loaded"] for each in acts.values()] == [False, True, True, False]
    under_rr, by_default = (acts[name]["classes"]["alarms"] for name in ("overload_baseline", "overload"))
    assert under_rr["p99_ms"] > by_default["p99_ms"]
    (alarm,) = story["alarms"]
    assert (alarm["home"], alarm["room"]) == (2, "living")
    # The first reading above 30 degrees, as the query says.
    assert (alarm["celsius"], alarm["after_s"]) == (32.2, 40.0)
    assert alarm["delay_ms"] > 0


@pytest.mark.long
def test_a_server_is_left_as_it_was_when_the_story_is_over(tmp_path: Path) -> None:
    with running_server(tmp_path, "--policy", "wrr") as server, Client(server.url) as client:
        done = demo("--seconds", "24", "--url", server.url)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Fire in home 2, living: found after 40 s" in done.stdout
        assert client.queries() == []
        assert client.scheduler().policy == "wrr"
        assert {info.name for info in client.streams()} == set(STREAMS)


def test_watching_only_needs_a_server() -> None:
    done = demo("--no-feed")
    assert done.returncode == 2
    assert "give --url" in done.stderr
    done = demo("--rate", "100", "--data", "homes")
    assert done.returncode == 2
    assert "--rate feeds the sample" in done.stderr


def test_make_demo_installs_what_it_needs_only(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    words = ["make", "-n", "-C", str(root), f"VENV={tmp_path}/venv"]
    planned = subprocess.run([*words, "demo"], capture_output=True, text=True, check=True).stdout
    assert "'.[server,page]'" in planned
    assert "[dev]" not in planned
    assert "mavstream demo" in planned
    planned = subprocess.run([*words, "install"], capture_output=True, text=True, check=True).stdout
    assert "'.[dev]'" in planned
