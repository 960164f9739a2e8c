"""Progress of long jobs on a terminal and in a log."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import Any

from tests.support.servers.running_server import PATIENCE

from mavstream_spark.progress import Bar, Lines


class Seen(io.StringIO):
    """A stream for progress that signals when a count of tasks was written."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal
        self.counted = threading.Event()

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        if "3 of 14 tasks" in text:
            self.counted.set()
        return super().write(text)


def spark_at_work() -> Any:
    """Return a fake session with one job of two known stages and a third that Spark has forgotten."""
    stages = {
        1: SimpleNamespace(numCompletedTasks=3, numTasks=4),
        2: SimpleNamespace(numCompletedTasks=0, numTasks=10),
    }
    tracker = SimpleNamespace(
        getActiveJobsIds=lambda: [7],
        getJobInfo=lambda job: SimpleNamespace(stageIds=(1, 2, 3)),
        getStageInfo=stages.get,
    )
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def test_a_log_gets_a_line_now_and_then_and_one_at_the_end() -> None:
    seen = Seen(terminal=False)
    lines = Lines(spark_at_work(), seen, period=0.01)
    with lines.step("motion"):
        assert seen.counted.wait(PATIENCE)
    lines.done("motion", "5 rows")
    first, *_, last = seen.getvalue().splitlines()
    assert first == "motion: 3 of 14 tasks after 0 s"
    assert last == "motion: 5 rows"


def test_a_terminal_shows_one_bar_that_is_replaced_by_a_line() -> None:
    seen = Seen(terminal=True)
    bar = Bar(spark_at_work(), seen)
    for name in ("motion", "doors"):
        seen.counted.clear()
        with bar.step(name):
            assert seen.counted.wait(PATIENCE)
        bar.done(name, "5 rows")
    *_, behind = seen.getvalue().partition("motion: 5 rows\n")
    assert behind.endswith("doors: 5 rows\n")
    assert "motion" not in behind
