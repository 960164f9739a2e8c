"""Progress of long jobs: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PERIOD = 0.5


class Progress(Protocol):
    """Is told what a job does."""

    def step(self, name: str) -> AbstractContextManager[None]:
        """Stand for one part of the job while it runs."""

    def done(self, name: str, summary: str) -> None:
        """Be told what came of a part."""


class Silent:
    """Shows nothing."""

    def step(self, name: str) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def done(self, name: str, summary: str) -> None:
        """Do nothing."""


class Lines:
    """Writes a line for each part that is done, and now and then how far a long one is."""

    def __init__(self, spark: SparkSession, stream: TextIO, period: float = 30.0) -> None:
        self._tracker: Any = spark.sparkContext.statusTracker()
        self._stream = stream
        self._period = period

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Watch Spark while the part runs."""
        since = time.monotonic()

        def tell(done: int, total: int) -> None:
            self._say(f"{name}: {done} of {total} tasks after {time.monotonic() - since:.0f} s")

        with self._watched(self._period, tell):
            yield

    def done(self, name: str, summary: str) -> None:
        """Write the line."""
        self._say(f"{name}: {summary}")

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    @contextmanager
    def _watched(self, period: float, tell: Callable[[int, int], None]) -> Iterator[None]:
        """Tell each period how many of the tasks that Spark knows of are done."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(period):
                done, total = self._tasks()
                if total:
                    tell(done, total)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _tasks(self) -> tuple[int, int]:
        done = total = 0
        for job in self._tracker.getActiveJobsIds():
            for stage in getattr(self._tracker.getJobInfo(job), "stageIds", ()):
                found = self._tracker.getStageInfo(stage)
                if found is not None:
                    done, total = done + found.numCompletedTasks, total + found.numTasks
        return done, total


class Bar(Lines):
    """Shows a bar with the share of tasks that are done while a part runs, then a line in its place."""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show the bar while the part runs."""
        bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=Console(file=self._stream),
            transient=True,
        )
        task = bars.add_task(name, total=None, note="")

        def tell(done: int, total: int) -> None:
            bars.update(task, total=total, completed=done, note=f"{done} of {total} tasks")

        with bars, self._watched(_PERIOD, tell):
            yield


def progress_for(spark: SparkSession, *, quiet: bool = False) -> Progress:
    """Return what fits where the errors go."""
    if quiet:
        return Silent()
    return Bar(spark, sys.stderr) if sys.stderr.isatty() else Lines(spark, sys.stderr)
