"""What the browser page costs: one server under load, with no page open, with one and with five, in turns.

Each turn has a while to settle, a steady part, in which latencies and processor time are measured, and a
burst of more rows than the server takes at once, which it answers as fast as it can. The tabs are real ones,
of a headless Chromium on the same machine; what they take of the processors is a part of what is measured,
and is reported beside it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from bench.load.schedule import Schedule
from bench.load.server_process import ServerProcess, cpu_clock, server
from bench.outcome import Outcome, text_table
from bench.recovery.loaded import LoadedServer
from bench.recovery.workload import IMPORTANT, Load, selects

_TABS = (0, 1, 5)
_VIEWS = ("/", "/queries", "/streams", "/scheduler", "/queries/important_0")
_BESIDE = "beside"
_RATE, _BURST_RATE, _TICK = 20_000.0, 2_500_000.0, 0.01
_IMPORTANT_RATE, _IMPORTANT_TICK = 500.0, 0.002
_SETTLE_S, _BURST_S, _REST_S = 8.0, 0.4, 4.0
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@dataclass(frozen=True, slots=True)
class _Turn:
    """A part of the load, with some tabs open; times are seconds of the schedule."""

    tabs: int
    begin: float
    steady: float
    burst: float
    rest: float
    end: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seconds", type=float, default=15.0, help="steady load of a turn (15)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each kind (5)")


def run(options: argparse.Namespace) -> Outcome:
    """Measure; turns are compared with the one without a page of the same round, and medians count."""
    if shutil.which("chromium") is None:
        return Outcome({}, "needs Chromium: apt-get install -y --no-install-recommends chromium", False)
    turns = _turns(options.rounds, options.seconds)
    with server("--page") as running:
        page_pid, address = _page(running)
        loaded = LoadedServer(running, _loads(turns))
        used: list[dict[str, float]] = []
        with _browser() as browser, loaded.fed():
            for turn in turns:
                loaded.sleep_until(turn.begin)
                with _open(browser, address, turn.tabs) as pages:
                    used.append(_watched(loaded, turn, page_pid, pages))
                    loaded.sleep_until(turn.rest)
        answers = [_answered(loaded, turn) for turn in turns]
        wrong = loaded.wrong()
    kinds: dict[int, list[dict[str, float]]] = {tabs: [] for tabs in _TABS}
    for turn, cost, answer in zip(turns, used, answers, strict=True):
        kinds[turn.tabs].append({**cost, **answer})
    found = {tabs: _medians(made, kinds[0]) for tabs, made in kinds.items()}
    late = sum(one["late"] for one in used)
    metrics = {**{str(tabs): one for tabs, one in found.items()}, "wrong": wrong, "late_turns": late}
    text = _shown(found)
    if late:
        text += f"\n\nIn {late:.0f} turns the tabs were open too late: their figures count for nothing."
    return Outcome(metrics, text, wrong == 0 and not late)


def _medians(made: Sequence[dict[str, float]], none: Sequence[dict[str, float]]) -> dict[str, float]:
    compared = {
        f"{key}_change": median(one[key] / other[key] - 1 for one, other in zip(made, none, strict=True))
        for key in ("burst_tuples_per_s", "important_p99_ms")
    }
    return {key: median(one[key] for one in made) for key in made[0]} | compared


def _shown(found: dict[int, dict[str, float]]) -> str:
    rows = [
        (
            f"{tabs} open",
            f"{one['burst_tuples_per_s'] / 1e6:.2f} M/s",
            f"{one['burst_tuples_per_s_change']:+.1%}",
            f"{one['important_p99_ms']:.2f} ms",
            f"{one['important_p99_ms_change']:+.1%}",
            f"{one['page_cores']:.2%}",
            f"{one['api_cores']:.1%}",
            f"{one['browser_cores']:.1%}",
            f"{one['first_paint_ms']:.0f} ms" if tabs else "-",
        )
        for tabs, one in found.items()
    ]
    head = ("pages", "burst", "change", "important p99", "change", "page", "API", "browser", "first paint")
    return text_table(head, rows)


def _turns(rounds: int, seconds: float) -> list[_Turn]:
    turns, begin = [], 0.0
    for number in range(rounds):
        # Each kind is first as often as the others.
        for place in range(len(_TABS)):
            steady = begin + _SETTLE_S
            burst = steady + seconds
            rest = burst + _BURST_S
            tabs = _TABS[(number + place) % len(_TABS)]
            turns.append(_Turn(tabs, begin, steady, burst, rest, rest + _REST_S))
            begin = turns[-1].end
    return turns


def _loads(turns: Sequence[_Turn]) -> Sequence[Load]:
    pieces = []
    for turn in turns:
        pieces += [
            (_RATE, turn.burst - turn.begin),
            (_BURST_RATE, turn.rest - turn.burst),
            (_RATE, turn.end - turn.rest),
        ]
    important = Schedule.steady(_IMPORTANT_RATE, turns[-1].end, _IMPORTANT_TICK, seed=1)
    return [
        Load(IMPORTANT, IMPORTANT, important, selects(IMPORTANT)),
        Load(_BESIDE, "default", Schedule(tuple(pieces), _TICK, seed=2), selects(_BESIDE)),
    ]


def _watched(loaded: LoadedServer, turn: _Turn, page_pid: int, pages: Sequence[Page]) -> dict[str, float]:
    """Return what the page, the API process and the browser used in the steady part of a turn."""
    watched = {"page": [page_pid], "api": loaded.running.pids[:1], "browser": _browser_pids()}
    late = time.time() - loaded.begin > turn.steady
    loaded.sleep_until(turn.steady)
    before = {name: _cpu_s(pids) for name, pids in watched.items()}
    loaded.sleep_until(turn.burst)
    seconds = turn.burst - turn.steady
    used = {f"{name}_cores": (_cpu_s(pids) - before[name]) / seconds for name, pids in watched.items()}
    return {**used, "first_paint_ms": max(map(_first_paint, pages), default=0.0), "late": float(late)}


def _answered(loaded: LoadedServer, turn: _Turn) -> dict[str, float]:
    """Return the latency of the steady part, and how fast the burst was answered."""
    beside = next(load for load in loaded.loads if load.stream == _BESIDE)
    ids = loaded.ids[list(loaded.loads).index(beside)]
    last = 0.0
    for query, id_ in zip(beside.queries, ids, strict=True):
        received = loaded.received[id_]
        since = beside.due_ns(query, received, loaded.begin) / 1e9 - loaded.begin
        of_burst = received.times[(since >= turn.burst) & (since < turn.rest)]
        last = max(last, float(of_burst.max()) / 1e9 - loaded.begin)
    dues = beside.schedule.dues / 1e6
    rows = int(((dues >= turn.burst) & (dues < turn.rest)).sum())
    latencies = loaded.latencies(turn.steady, turn.burst)
    return {
        "burst_tuples_per_s": rows / (last - turn.burst),
        "important_p99_ms": float(np.percentile(latencies, 99)),
    }


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
def _browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
        yield browser
        browser.close()


@contextmanager
def _open(browser: Browser, address: str, tabs: int) -> Iterator[list[Page]]:
    """Open views in tabs of a browser."""
    context = browser.new_context()
    pages = [context.new_page() for _ in range(tabs)]
    for page, view in zip(pages, _VIEWS, strict=False):
        page.goto(f"{address}{view}")
        page.wait_for_selector(".card, .now", timeout=60_000)
    yield pages
    context.close()


def _first_paint(page: Page) -> float:
    script = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    return float(page.evaluate(script))


def _browser_pids() -> list[int]:
    """Return the processes of the browser: descendants of this one."""
    names: dict[int, str] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, _, rest = (entry / "stat").read_text().partition(" (")[2].rpartition(")")
            names[int(entry.name)], parents[int(entry.name)] = name, int(rest.split()[1])

    def is_mine(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [pid for pid, name in names.items() if name.startswith("chrom") and is_mine(pid)]


def _cpu_s(pids: Sequence[int]) -> float:
    used = 0.0
    for pid in pids:
        with suppress(OSError):
            used += time.clock_gettime(cpu_clock(pid))
    return used
