"""Traces of the scheduler: recorded by a real server under load, shown as tables, JSON and pictures."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from xml.etree import ElementTree

import httpx
import pytest
from matplotlib.image import imread
from tests.support.commands.in_process import Outcome
from tests.support.commands.in_process import command as run_here
from tests.support.servers.running_server import PATIENCE, RunningServer, eventually, running_server

from mavstream import AsyncClient, Client, Conflict, Query, stream
from mavstream.cli.display.timeline import draw
from mavstream_protocol.instants import parse_instant
from mavstream_protocol.scheduling import LONGEST_TRACE, SchedulerTrace, SourceService
from mavstream_server.api.routers.scheduler import MOST_SLICES
from mavstream_server.engine.process.channel import MOST_BYTES, encode
from mavstream_server.engine.process.messages import Done
from mavstream_server.engine.slices.trace import RecordedSlices, TracedSlice

SHORT = 0.2
TRACE = "/v1/scheduler/trace"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def busy(server: RunningServer) -> Iterator[dict[str, str]]:
    """Running queries, as classes by id: two classes are fed, a third has no rows."""
    with Client(server.url) as client:
        client.set_scheduler("rr", SourceService.PER_CLASS, unit="query")
        for name in ("readings", "silence"):
            client.create_stream(name=name, fields=[{"name": "t", "type": "int"}])
        for name, priority in {"reports": 1, "idlers": 3, "alarms": 6}.items():
            client.put_class(name, priority)
        readings, silence = stream("readings"), stream("silence")
        fed = [
            client.submit(readings.where("t >= 0"), name="hot", class_="alarms"),
            client.submit(readings.project(double="t * 2"), name="doubled", class_="reports"),
        ]
        client.submit(silence.where("t > 0"), name="waiting", class_="idlers")
        with feeding(client, fed):
            yield {query.id: query.info().spec.class_ for query in fed}


@contextmanager
def feeding(client: Client, queries: list[Query]) -> Iterator[None]:
    """Feed a few rows at a time during the block; the queries have answered when it begins."""
    over = Event()

    def feed() -> None:
        with client.feed("sensors", ["readings"]) as sender:
            while not over.wait(0.002):
                sender.send("readings", {"t": list(range(20))})

    feeder = Thread(target=feed)
    feeder.start()
    try:
        eventually(lambda: all(query.info().results for query in queries), "the first answers")
        yield
    finally:
        over.set()
        feeder.join(PATIENCE)


def command(server: RunningServer, *args: str) -> Outcome:
    return run_here("--url", server.url, "scheduler", "trace", *args)


def process(server: RunningServer, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mavstream", "--url", server.url, "scheduler", "trace", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **env},
    )


def check(found: SchedulerTrace, busy: dict[str, str]) -> None:
    assert (found.policy, found.left_out) == ("rr", 0)
    assert SHORT - 0.01 <= found.seconds < PATIENCE  # timers may fire a little early
    assert {one.query: one.class_ for one in found.slices} == busy
    for one in found.slices:
        assert 0 <= one.at_ms <= one.at_ms + one.took_ms <= found.seconds * 1000 + 0.01
        assert one.operators[-1] == "output"
    assert sum(one.consumed for one in found.slices) > sum(one.produced for one in found.slices) / 2 > 0
    # There is one core, so each slice ends before the next begins.
    for one, following in zip(found.slices, found.slices[1:], strict=False):
        assert one.at_ms + one.took_ms <= following.at_ms + 0.01


def test_a_trace_has_the_times_of_every_slice(server: RunningServer, busy: dict[str, str]) -> None:
    with Client(server.url) as client:
        first, second = client.trace(SHORT), client.trace(SHORT)
    check(first, busy)
    check(second, busy)
    assert parse_instant(first.started) + first.seconds * 1e6 <= parse_instant(second.started)


def test_both_clients_wait_for_the_duration_of_the_trace(server: RunningServer, busy: dict[str, str]) -> None:
    async def ask() -> SchedulerTrace:
        async with AsyncClient(server.url, timeout=SHORT) as client:
            return await client.trace(seconds=2 * SHORT)

    check(asyncio.run(ask()), busy)
    with Client(server.url, timeout=SHORT) as client:
        check(client.trace(seconds=2 * SHORT), busy)


def test_a_trace_is_printed_as_json_if_asked_for(server: RunningServer, busy: dict[str, str]) -> None:
    done = process(server, "--seconds", str(SHORT), "-o", "json", PYTHONWARNINGS="error")
    assert (done.returncode, done.stderr) == (0, "")
    given = json.loads(done.stdout)
    check(SchedulerTrace.model_validate(given), busy)
    assert {one["class"] for one in given["slices"]} == {"alarms", "reports"}


def test_a_trace_is_printed_as_tables_by_default(server: RunningServer, busy: dict[str, str]) -> None:
    done = command(server, "--seconds", str(SHORT), "--rows", "3")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    heading = lines.index(["class", "slices", "tuples", "busy", "ms", "share", "longest", "ms"])
    # The most important class comes first; a class that did not run is shown, too.
    totals = lines[heading + 2 : heading + 5]
    assert [line[0] for line in totals] == ["alarms", "idlers", "reports"]
    assert [int(line[1]) > 0 for line in totals] == [True, False, True]
    assert totals[1][3:] == ["0.000", "0.0", "%", "0.000"]
    heading = lines.index(["at", "ms", "took", "ms", "class", "query", "operators", "in", "out"])
    slices = [line for line in lines[heading + 2 :] if "output" in line]
    assert len(slices) == 3
    assert {line[3]: line[2] for line in slices}.items() <= busy.items()
    shown = sum(int(line[1]) for line in totals)
    assert f"{shown - 3} more slices are not shown" in done.stdout


@pytest.mark.parametrize("ending", ["png", "SVG"])
def test_a_timeline_is_drawn(
    server: RunningServer, busy: dict[str, str], tmp_path: Path, ending: str
) -> None:
    file = tmp_path / f"trace.{ending}"
    done = command(server, "--seconds", str(SHORT), "--rows", "0", "--picture", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    if ending == "png":
        assert file.read_bytes().startswith(PNG)
        assert imread(file).std() > 0.01  # it is not blank
        return
    assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    text = file.read_text()
    # Lanes are drawn top down, the most important class first, with a legend.
    lanes = [text.index(f"<!-- {name} -->") for name in ("alarms", "idlers", "reports")]
    assert lanes == sorted(lanes)
    assert all(f"<!-- {query} -->" in text for query in busy)
    assert re.search(r"<!-- Policy rr, [\d.]+ s from ", text)


def test_the_picture_of_a_full_trace_says_that_it_is_full(tmp_path: Path) -> None:
    slices = [
        {"at_ms": at / 100, "took_ms": 0.008, "core": 0, "query": f"q{at % 20}", "class": "a",
         "operators": ["select"], "consumed": 1, "produced": 1}
        for at in range(MOST_SLICES)
    ]  # fmt: skip
    given = {"started": "", "seconds": 1.0, "policy": "rr", "slices": slices, "left_out": 7}
    draw(SchedulerTrace.model_validate(given), {"a": "80 %"}, tmp_path / "full.svg")
    text = (tmp_path / "full.svg").read_text()
    assert "<!-- 12 more -->" in text
    assert "<!-- 7 slices left out -->" in text
    assert len(text) < 1 << 20


def test_an_empty_trace_is_drawn(tmp_path: Path) -> None:
    empty = SchedulerTrace(started="", seconds=SHORT, policy="rr", slices=[], left_out=0)
    draw(empty, {}, tmp_path / "empty.png")
    assert (tmp_path / "empty.png").read_bytes().startswith(PNG)


def test_an_invalid_picture_file_is_refused_before_anything_is_recorded(server: RunningServer) -> None:
    done = command(server, "--seconds", str(LONGEST_TRACE), "--picture", "trace.pdf")
    assert (done.returncode, done.stdout) == (2, "")
    assert "got 'trace.pdf'" in done.stderr
    assert ".png or .svg" in done.stderr


def test_a_picture_that_cannot_be_written_is_named(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "none" / "trace.png"
    done = command(server, "--seconds", str(SHORT), "--picture", str(file))
    assert done.returncode == 2
    assert f"'{file}' cannot be written (No such file or directory)" in done.stderr


def test_a_missing_extra_is_named(server: RunningServer, tmp_path: Path) -> None:
    # A broken package of the same name, ahead of the real one, simulates a missing extra.
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("import a_module_that_is_missing")
    done = process(server, "--picture", "trace.png", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs packages that are not installed (No module named 'a_module_that_is_missing')" in done.stderr
    assert "pip install 'mavstream[pictures]'" in done.stderr
    assert process(server, "--seconds", str(SHORT), PYTHONPATH=str(tmp_path)).returncode == 0


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [
        ("0", "must be greater than 0, got '0'"),
        ("-1", "must be greater than 0, got '-1'"),
        ("60.1", "must be less than or equal to 60, got '60.1'"),
        ("nan", "must be a finite number, got 'nan'"),
        ("soon", "got 'soon'"),
    ],
)
def test_invalid_durations_are_refused(server: RunningServer, seconds: str, printed: str) -> None:
    refused = server.http.get(TRACE, params={"seconds": seconds})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert refused.json()["errors"][0]["pointer"] == "query/seconds"
    assert printed in refused.json()["detail"]
    done = command(server, f"--seconds={seconds}")
    assert (done.returncode, done.stdout) == (2 if seconds == "soon" else 1, "")


def connections(server: RunningServer) -> int:
    open_: int = server.http.get("/v1/stats").json()["connections"]
    return open_


@contextmanager
def long_trace(server: RunningServer) -> Iterator[socket.socket]:
    """Begin a trace of a minute, and disconnect at the end of the block."""
    before, where = connections(server), httpx.URL(server.url)
    with socket.create_connection((where.host, where.port or 80), PATIENCE) as asking:
        asking.sendall(f"GET {TRACE}?seconds={LONGEST_TRACE} HTTP/1.1\r\nHost: {where.host}\r\n\r\n".encode())
        eventually(lambda: connections(server) > before, "the trace to be asked for")
        for _ in range(3):  # the engine answers each after the command that starts the trace
            connections(server)
        yield asking


def test_there_is_one_trace_at_a_time_and_it_ends_with_its_client(server: RunningServer) -> None:
    with long_trace(server):
        refused = server.http.get(TRACE)
        assert (refused.status_code, refused.json()["code"]) == (409, "trace_running")
        assert "traced already" in refused.json()["detail"]
        assert "try again when that one has ended" in refused.json()["detail"]
        with Client(server.url) as client, pytest.raises(Conflict, match="one trace at a time"):
            client.trace(SHORT)
    # The trace ends before its minute is over, or this times out.
    eventually(
        lambda: server.http.get(TRACE, params={"seconds": SHORT}).status_code == 200,
        "the trace to end with its client",
    )


def test_a_trace_ends_with_its_engine_and_with_its_server(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        with long_trace(server) as asking:
            assert server.engine_pid is not None
            os.kill(server.engine_pid, signal.SIGKILL)
            answer = ""
            while '"code"' not in answer and (more := asking.recv(1 << 16).decode()):
                answer += more
            assert answer.startswith("HTTP/1.1 503 ")
            assert '"code": "engine_unavailable"' in answer
            assert "the engine process died" in answer
        eventually(lambda: server.ready, "the next engine")
        with Client(server.url) as client:
            assert client.trace(SHORT).slices == []
        before = len(server.events())
        with long_trace(server) as asking:  # a server that stops does not wait for it
            assert server.stop() == 0
            assert '"code": "stopping"' in asking.recv(1 << 16).decode()
        assert not [event for event in server.events()[before:] if event["level"] == "error"]


def test_the_control_channel_carries_a_full_trace_of_the_largest_plans() -> None:
    operators = [("select", "project", "union", "aggregate")[index % 4] for index in range(257)]
    slices = [
        TracedSlice(10**18 + at, 0, "a_query-abcdef", "a_class", tuple(operators), 10**6, 10**6, 10**9)
        for at in range(MOST_SLICES)
    ]
    assert len(encode(1, Done(RecordedSlices(slices, 10**6)))) < MOST_BYTES / 2
