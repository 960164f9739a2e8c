"""Runners as processes, and a standalone cluster of Spark for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from tests.support.servers.running_server import RunningServer, eventually

START_S = 900.0
"""Seconds that Spark may take to start on a busy machine."""

T = TypeVar("T")


def awaited(ask: Callable[[], T | None], what: str) -> T:
    """Poll a function until it returns something true: seldom, as Spark needs the cores."""
    pause = threading.Event()

    def seldom() -> T | None:
        return ask() or (pause.wait(0.5) or None)

    return eventually(seldom, what, START_S)


class RunnerProcess:
    """`mavstream spark-runner` as a process that can be killed and started again."""

    def __init__(self, server: RunningServer, log: Path, *words: str) -> None:
        few = ("--conf", "spark.sql.shuffle.partitions=4")
        self._words = ("--url", server.url, "--interval", "0.5", "--name", "tested", *few, *words)
        self._token = server.token
        self.log = log
        self.start()

    def start(self) -> None:
        env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        if self._token:
            env["MAVSTREAM_TOKEN"] = self._token
        with self.log.open("ab") as log:
            # A group of its own: its workers end with it.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mavstream_spark.runs", *self._words],
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the driver with its workers, as the loss of a machine would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_executor(self) -> None:
        """Kill an executor of a local cluster, which is a child of the driver; Spark starts another one."""
        for found in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                pid = int(found.parent.name)
                if (
                    b"CoarseGrainedExecutorBackend" in found.read_bytes()
                    and os.getpgid(pid) == self.process.pid
                ):
                    os.kill(pid, signal.SIGKILL)
                    return
        raise AssertionError("the runner has no executor")

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        print(self.log.read_text()[-5000:])


@contextmanager
def runner(server: RunningServer, log: Path, *words: str) -> Iterator[RunnerProcess]:
    """Run a runner as long as the context."""
    made = RunnerProcess(server, log, *words)
    try:
        yield made
    finally:
        made.close()


class StandaloneCluster:
    """A standalone master and its workers on loopback."""

    def __init__(self, home: Path, folder: Path, workers: int) -> None:
        self._home, self._folder = home, folder
        folder.mkdir()
        self._master = self._launch(
            "master", "Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        self.url = awaited(self._find_url, "the master")
        self.workers = [self._worker(number) for number in range(workers)]

    def _find_url(self) -> str:
        for line in (self._folder / "master.log").read_text().splitlines():
            if "Starting Spark master at" in line:
                return line.split()[-1]
        return ""

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        words = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g")
        work = ("--work-dir", str(self._folder / f"work{number}"), self.url)
        return self._launch(f"worker{number}", "Worker", *words, *work)

    def _launch(self, name: str, kind: str, *words: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "SPARK_HOME": str(self._home), "PYSPARK_PYTHON": sys.executable}
        command = [
            self._home / "bin" / "spark-class",
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
            *words,
        ]
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors, and start another one in its place."""
        _kill(self.workers[number])
        self.workers[number] = self._worker(len(self.workers) + number)

    def close(self) -> None:
        for process in (*self.workers, self._master):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
