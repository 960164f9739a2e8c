"""What the browser page costs: the same load with no page open, with one and with five, in turns.

The tabs are real ones, of a headless Chromium on the same machine; what they take of the
processors is a part of what is measured.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from bench.load.schedule import Schedule
from bench.load.server_process import ServerProcess, cpu_clock, server
from bench.outcome import Outcome, text_table
from bench.recovery.cost import burst_rate
from bench.recovery.loaded import LoadedServer
from bench.recovery.workload import IMPORTANT, Load, selects

_TABS = (0, 1, 5)
_VIEWS = ("/", "/queries", "/streams", "/scheduler", "/")
_RATE, _BURST_RATE, _BURST_S, _TICK = 20_000.0, 400_000.0, 3.0, 0.01
_IMPORTANT_RATE, _IMPORTANT_TICK = 500.0, 0.002
_SETTLE_S = 5.0
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seconds", type=float, default=15.0, help="steady load of a run (15)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind, in turns (3)")


def run(options: argparse.Namespace) -> Outcome:
    """Measure; the medians of several runs count."""
    if shutil.which("chromium") is None:
        return Outcome({}, "needs Chromium: apt-get install -y --no-install-recommends chromium", False)
    runs: dict[int, list[dict[str, Any]]] = {tabs: [] for tabs in _TABS}
    for _ in range(options.rounds):
        for tabs in _TABS:
            runs[tabs].append(_measure(tabs, options.seconds))
    found = {tabs: {key: median(one[key] for one in made) for key in made[0]} for tabs, made in runs.items()}
    none = found[0]
    rows = [
        (
            f"{tabs} open",
            f"{one['burst_tuples_per_s'] / 1e6:.2f} M/s",
            f"{one['burst_tuples_per_s'] / none['burst_tuples_per_s'] - 1:+.1%}",
            f"{one['important_p99_ms']:.2f} ms",
            f"{one['important_p99_ms'] / none['important_p99_ms'] - 1:+.1%}",
            f"{one['page_cores']:.2%}",
            f"{one['first_paint_ms']:.0f} ms" if tabs else "-",
        )
        for tabs, one in found.items()
    ]
    head = ("pages", "ingest", "change", "important p99", "change", "of a core", "first paint")
    return Outcome(
        {str(tabs): one for tabs, one in found.items()},
        text_table(head, rows),
        all(one["wrong"] == 0 for one in found.values()),
    )


def _measure(tabs: int, seconds: float) -> dict[str, Any]:
    with server("--page") as running:
        pid, address = _page(running)
        loaded = LoadedServer(running, _loads(_SETTLE_S + seconds))
        with _open(address, tabs) as pages, loaded.fed():
            loaded.sleep_until(_SETTLE_S)
            before = time.clock_gettime(cpu_clock(pid))
            loaded.sleep_until(_SETTLE_S + seconds)
            used = time.clock_gettime(cpu_clock(pid)) - before
            paints = [_first_paint(page) for page in pages]
        latencies = loaded.latencies(_SETTLE_S, _SETTLE_S + seconds)
        return {
            "burst_tuples_per_s": burst_rate(loaded, _SETTLE_S + seconds),
            "important_p99_ms": float(np.percentile(latencies, 99)),
            "page_cores": used / seconds,
            "first_paint_ms": max(paints, default=0.0),
            "wrong": loaded.wrong(),
        }


def _loads(steady_s: float) -> Sequence[Load]:
    important = Schedule.steady(_IMPORTANT_RATE, steady_s + _BURST_S, _IMPORTANT_TICK, seed=1)
    beside = Schedule(((_RATE, steady_s), (_BURST_RATE, _BURST_S)), _TICK, seed=2)
    return [
        Load(IMPORTANT, IMPORTANT, important, selects(IMPORTANT)),
        Load("beside", "default", beside, selects("beside")),
    ]


def _page(running: ServerProcess) -> tuple[int, str]:
    """Return the process id and the address of the server's page, once it is served."""
    until = time.monotonic() + 60.0
    while (answer := running.http.get("/")).status_code != 307:
        assert time.monotonic() < until, answer.text
        time.sleep(0.1)
    for pid in running.pids:
        if "mavstream_page" in Path(f"/proc/{pid}/cmdline").read_text():
            return pid, answer.headers["location"].rstrip("/")
    raise AssertionError("the server has no page process")


@contextmanager
def _open(address: str, tabs: int) -> Iterator[list[Page]]:
    """Open views in tabs of a browser."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
        pages = [browser.new_page() for _ in range(tabs)]
        for page, view in zip(pages, _VIEWS, strict=False):
            page.goto(f"{address}{view}")
            page.wait_for_selector(".card, .now", timeout=60_000)
        yield pages
        browser.close()


def _first_paint(page: Page) -> float:
    script = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    return float(page.evaluate(script))
