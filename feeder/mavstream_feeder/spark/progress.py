"""Progress of long jobs: bars on a terminal, a line per finished step elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
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
    """Writes a line for each part that is done."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def step(self, name: str) -> AbstractContextManager[None]:
        """Say nothing yet."""
        return nullcontext()

    def done(self, name: str, summary: str) -> None:
        """Write the line."""
        print(f"{name}: {summary}", file=self._stream, flush=True)


class Bar:
    """Shows a bar with the share of Spark's tasks that are done."""

    def __init__(self, spark: SparkSession, stream: TextIO) -> None:
        self._tracker: Any = spark.sparkContext.statusTracker()
        self._bars = Bars(
            TextColumn("{task.description:12}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=Console(file=stream),
        )
        self._tasks: dict[str, TaskID] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Watch Spark while the part runs."""
        task = self._tasks[name] = self._bars.add_task(name, total=None, note="")
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(task, over), daemon=True)
        self._bars.start()
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            self._bars.stop()

    def done(self, name: str, summary: str) -> None:
        """Fill the bar."""
        self._bars.update(self._tasks[name], total=1, completed=1, note=summary)
        self._bars.refresh()

    def _watch(self, task: TaskID, over: threading.Event) -> None:
        while not over.wait(_PERIOD):
            done = total = 0
            for job in self._tracker.getActiveJobsIds():
                for stage in getattr(self._tracker.getJobInfo(job), "stageIds", ()):
                    found = self._tracker.getStageInfo(stage)
                    if found is not None:
                        done, total = done + found.numCompletedTasks, total + found.numTasks
            if total:
                self._bars.update(task, total=total, completed=done, note=f"{done} of {total} tasks")


def progress_for(spark: SparkSession, *, quiet: bool = False) -> Progress:
    """Return what fits where the errors go."""
    if quiet:
        return Silent()
    return Bar(spark, sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)
