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
    """Receives the progress of a job."""

    def step(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which one step of the job runs."""

    def done(self, name: str, summary: str) -> None:
        """Report the result of a step."""


class Silent:
    """Shows nothing."""

    def step(self, name: str) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def done(self, name: str, summary: str) -> None:
        """Do nothing."""


class Lines:
    """Writes a line for each finished step and, every `period` seconds, the progress of a long one."""

    def __init__(self, spark: SparkSession, stream: TextIO, period: float = 30.0) -> None:
        self._tracker: Any = spark.sparkContext.statusTracker()
        self._stream = stream
        self._period = period

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Watch Spark's tasks while the step runs."""
        start = time.monotonic()

        def report(done: int, total: int) -> None:
            self._write(f"{name}: {done} of {total} tasks after {time.monotonic() - start:.0f} s")

        with self._watched(self._period, report):
            yield

    def done(self, name: str, summary: str) -> None:
        """Write the line."""
        self._write(f"{name}: {summary}")

    def _write(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    @contextmanager
    def _watched(self, period: float, report: Callable[[int, int], None]) -> Iterator[None]:
        """Call `report` each period with the numbers of finished and of all tasks of active jobs."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(period):
                done, total = self._tasks()
                if total:
                    report(done, total)

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
                info = self._tracker.getStageInfo(stage)
                if info is not None:
                    done, total = done + info.numCompletedTasks, total + info.numTasks
        return done, total


class Bar(Lines):
    """Shows a bar with the share of finished tasks while a step runs, then a line in its place."""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show the bar while the step runs."""
        bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=Console(file=self._stream),
            transient=True,
        )
        task = bars.add_task(name, total=None, note="")

        def report(done: int, total: int) -> None:
            bars.update(task, total=total, completed=done, note=f"{done} of {total} tasks")

        with bars, self._watched(_PERIOD, report):
            yield


def progress_for(spark: SparkSession, *, quiet: bool = False) -> Progress:
    """Return a bar if standard error is a terminal, else lines; nothing if `quiet`."""
    if quiet:
        return Silent()
    return Bar(spark, sys.stderr) if sys.stderr.isatty() else Lines(spark, sys.stderr)
