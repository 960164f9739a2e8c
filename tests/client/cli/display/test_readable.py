"""Numbers, sizes and times in tables."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from mavstream.cli.display import output
from mavstream.cli.display.readable import clock, number, size
from mavstream_feeder.display import progress
from mavstream_feeder.sending.feeder import Feeder
from mavstream_feeder.sending.feeds import Options
from mavstream_feeder.sending.link import Address
from mavstream_server.core.defaults import default_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234567, "1,234,567"),
        (12.345, "12.3"),
        (2411236.7, "2,411,237"),
        (0.00017, "0.00017"),
        (-1e16, "-1e+16"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (100520, "100.5 KB"),
        (999_999, "1.0 MB"),
        (67108864, "67.1 MB"),
        (5e15, "5,000.0 TB"),
    ],
)
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text


def test_times_and_nothing() -> None:
    assert clock("2026-01-01T12:00:00.123456Z") == "2026-01-01 12:00:00"
    assert (clock(None), size(None)) == (None, None)
    assert output.readable({"p95": 12.345, "n": 2000, "at": None}) == "p95 12.3, n 2,000, at -"
    assert output.readable([1, True]) == "1, yes"
    assert output.cell(1234567) == "1234567"


def test_the_progress_of_a_feeder_has_a_line_for_its_bar() -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=80, force_terminal=True, color_system=None)
    feeder = Feeder(Address("http://127.0.0.1:1"), Options())
    console.print(progress(feeder, 100, None))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()).splitlines()
    assert set(lines[0].strip()) <= set("━╸╺ ")
    assert lines[1].split()[:3] == ["stream", "sent", "acked"]
    assert max(map(len, lines)) <= 80


def test_defaults_of_the_server_are_written_as_flags_are() -> None:
    assert default_text("port") == "8000"
    assert default_text("page") == "yes"
    assert default_text("max_frame_bytes") == "16MiB"
    assert default_text("checkpoint_interval") == "5s"
    assert (default_text("tls_cert"), default_text("query_memory"), default_text("log")) == (None, None, None)
