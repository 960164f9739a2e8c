"""Pipes that are fed as their lines come: `mavstream feed STREAM=-`, `mavstream stream append STREAM -`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.commands.in_process import command
from tests.support.servers.running_server import eventually

from mavstream import Client
from mavstream.testing import start_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start_server(timeout=120) as found:
        yield found


@contextmanager
def piped(url: str, *words: str, source: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command with a pipe as its standard input."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mavstream", *words],
        stdin=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "MAVSTREAM_URL": url},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def write(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode())
    process.stdin.flush()


def rows(client: Client, stream: str) -> int:
    return client.stream_info(stream).position if stream in {one.name for one in client.streams()} else 0


@pytest.mark.parametrize(
    ("name", "words", "header", "line"),
    [
        ("live_json", (), "", '{{"room": "hall", "temp": {0}.5}}\n'),
        ("live_csv", ("--format", "csv"), "room,temp\n", "hall,{0}.5\n"),
    ],
)
def test_rows_are_fed_as_they_come(
    url: str, name: str, words: tuple[str, ...], header: str, line: str
) -> None:
    with Client(url) as client, piped(url, "feed", f"{name}=-", "--create", "-o", "json", *words) as process:
        write(process, header + line.format(0))
        # The pipe is still open, and a row that is not complete waits.
        eventually(lambda: rows(client, name) == 1, "the first row")
        write(process, line.format(1) + line.format(2)[:7])
        eventually(lambda: rows(client, name) == 2, "the second row")
        write(process, line.format(2)[7:])
        eventually(lambda: rows(client, name) == 3, "the third row")
        out, errors = process.communicate()
        assert process.returncode == 0, errors
        assert (json.loads(out)["acked"], json.loads(out)["stopped"]) == (3, "done")
        assert [row["temp"] for row in client.rows(name).rows] == [0.5, 1.5, 2.5]


def test_an_interrupted_pipe_ends_with_what_was_read(url: str) -> None:
    with Client(url) as client, piped(url, "feed", "live_stop=-", "--create", "-o", "json") as process:
        write(process, '{"v": 1}\n')
        eventually(lambda: rows(client, "live_stop") == 1, "the row")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
        assert process.returncode == 0
        assert (json.loads(out)["acked"], json.loads(out)["stopped"]) == (1, "asked")


def test_appended_pipes_are_flushed_as_rows_come(url: str) -> None:
    with Client(url) as client:
        client.create_stream(name="live_append", fields=[{"name": "v", "type": "int"}])
        with piped(url, "stream", "append", "live_append", "-", "-o", "json") as process:
            write(process, '{"v": 1}\n')
            eventually(lambda: rows(client, "live_append") == 1, "the first row")
            write(process, '{"v": 2}\n')
            out, errors = process.communicate()
            assert errors == b""
            assert json.loads(out) == {"stream": "live_append", "rows": 2}


def test_bad_lines_do_not_end_a_pipe_and_the_stream_is_completed(url: str) -> None:
    days = (f"2026-01-{n:02}\t{'warm' if n == 13 else n}\n" for n in range(1, 21))
    done = command(
        "feed", "live_bad=-", "--create", "--format", "csv", "--complete", "--event-time", "When",
        "--rename", "Temperature (C)=temp", "--delimiter", "tab",
        stdin="When\tTemperature (C)\n" + "".join(days),
        MAVSTREAM_URL=url,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "created stream 'live_bad': When timestamp, temp int?; event time: When" in done.stderr
    assert "1 rows could not be read and were left out, first:" in done.stderr
    assert "line 14, column 'temp': 'warm' is no int" in done.stderr
    with Client(url) as client:
        assert client.stream_info("live_bad").spec.event_time == "When"
        page = client.rows("live_bad")
        assert page.complete
        assert [row["temp"] for row in page.rows] == [n for n in range(1, 21) if n != 13]


def test_what_cannot_be_piped_is_explained(url: str) -> None:
    wrong = {
        ("feed", "-"): "say which stream gets the rows",
        ("feed", "a=-", "--rate", "5"): "leave out other files",
        ("feed", "a.csv", "--format", "csv"): "--format is for pipes",
        ("feed", "a=-", "--delimiter", "ab"): "one character",
        ("feed", "a=-", "--rename", "ab"): "is not HEADER=NAME",
    }
    for words, text in wrong.items():
        done = command(*words, stdin='{"a": 1}\n', MAVSTREAM_URL=url)
        assert done.returncode == 2, words
        assert text in " ".join(done.stderr.replace("│", " ").split())
    unknown = command("feed", "nobody=-", stdin='{"a": 1}\n', MAVSTREAM_URL=url)
    assert (unknown.returncode, "nobody" in unknown.stderr) == (1, True)
    nothing = command("feed", "nobody=-", "--create", stdin="", MAVSTREAM_URL=url)
    assert (nothing.returncode, "there are no rows" in nothing.stderr) == (1, True)


def test_created_streams_and_differences_are_told(url: str, tmp_path: Path) -> None:
    file = tmp_path / "told.csv"
    file.write_text("at,temp\n" + "".join(f"2026-01-01T00:00:{i:02},{i}.5\n" for i in range(20)))
    first = command("feed", str(file), "--create", MAVSTREAM_URL=url)
    assert first.returncode == 0, first.stderr
    assert "created stream 'told': at timestamp, temp float; event time: at" in first.stderr
    file.write_text("at,temp\n" + "".join(f"2026-01-02T00:00:{i:02},much\n" for i in range(20)))
    again = command("feed", str(file), "--create", "-o", "table", MAVSTREAM_URL=url)
    assert "looks like string, which the stream has as float" in again.stderr
    assert "20 rows could not be read and were left out" in again.stderr
    assert "line 2, column 'temp': 'much' is no float" in again.stderr


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _broker() -> str | None:
    return shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")


@pytest.mark.skipif(_broker() is None and "CI" not in os.environ, reason="there is no mosquitto")
def test_messages_of_a_broker_are_fed_as_they_are_published(url: str, tmp_path: Path) -> None:
    port = str(free_port())
    settings = tmp_path / "mosquitto.conf"
    settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    broker = subprocess.Popen(
        [str(_broker()), "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def publish(*more: str) -> bool:
        run = ["mosquitto_pub", "-p", port, "-t", "home/hall", *more]
        return subprocess.run(run, capture_output=True, check=False).returncode == 0

    try:
        eventually(lambda: publish("-n"), "the broker")
        subscriber = subprocess.Popen(
            ["mosquitto_sub", "-p", port, "-t", "home/+", "-C", "3"], stdout=subprocess.PIPE
        )
        assert subscriber.stdout is not None
        with Client(url) as client:
            words = ("feed", "mqtt=-", "--create", "-o", "json")
            with piped(url, *words, source=subscriber.stdout.fileno()) as process:
                # A message that is kept reaches a subscriber that subscribes later.
                assert publish("-r", "-m", '{"temp": 20.5}')
                eventually(lambda: rows(client, "mqtt") == 1, "the first message")
                assert publish("-m", '{"temp": 21.5}')
                eventually(lambda: rows(client, "mqtt") == 2, "the second message")
                assert publish("-m", '{"temp": 22.5}')
                out, errors = process.communicate()
                assert process.returncode == 0, errors
                assert json.loads(out)["acked"] == 3
            assert [row["temp"] for row in client.rows("mqtt").rows] == [20.5, 21.5, 22.5]
        subscriber.communicate()
    finally:
        broker.terminate()
        broker.wait()
