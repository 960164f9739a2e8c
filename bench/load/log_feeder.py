"""A process that writes tuples into stream logs, for an engine without a server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from shutil import disk_usage
from typing import Any

import numpy as np

from bench.workload.class_workloads import SCHEMA
from bench.workload.readings import readings
from mavstream_server.log import LogDescription, LogWriter

_TICK = 0.005  # seconds between two writings
_KEPT_ROWS = 1 << 17
_ROOM = 4 << 30  # bytes


def memory_directory() -> Path | None:
    """Return a directory in memory if one has room, so that disks do not affect the comparison.

    At these rates a run writes a gigabyte, and a disk that cannot keep up stops writer and engine alike.
    """
    place = Path("/dev/shm")
    return place if place.is_dir() and disk_usage(place).free > _ROOM else None


class LogFeeder:
    """The feeding process and the memory that it shares with this one."""

    def __init__(self, place: Path, streams: Sequence[str], rate: float, seconds: float, tick: float) -> None:
        context = get_context("spawn")
        self._made, self._go = context.Event(), context.Event()
        # Plain shared memory, since one of the values is read between any two slices.
        self._done, self._rows = context.RawValue("b", 0), context.RawValue("q", 0)
        arguments = (place, streams, rate, seconds, tick, self._made, self._go, self._done, self._rows)
        self._process = context.Process(target=_write, args=arguments, daemon=True)
        self._process.start()
        self._made.wait(60)

    def start(self) -> None:
        """Let it begin."""
        self._go.set()

    @property
    def writing(self) -> bool:
        """Whether it is not done yet."""
        return not self._done.value

    def written(self) -> int:
        """Return how many rows it has written in all."""
        return int(self._rows.value)

    def close(self) -> None:
        """Wait for the process to end."""
        self._go.set()
        self._process.join(60)


@contextmanager
def log_feeder(
    place: Path, streams: Sequence[str], rate: float, seconds: float, tick: float = _TICK
) -> Iterator[LogFeeder]:
    """Have a process write Poisson numbers of tuples into logs, at every tick (s)."""
    made = LogFeeder(place, streams, rate, seconds, tick)
    try:
        yield made
    finally:
        made.close()


def _write(
    place: Path,
    streams: Sequence[str],
    rate: float,
    seconds: float,
    tick: float,
    made: Any,
    go: Any,
    done: Any,
    rows: Any,
) -> None:
    random = np.random.default_rng(1)
    columns = {name: column for name, column in readings(_KEPT_ROWS, seed=2).items() if name in SCHEMA.names}
    writers = [LogWriter(place / stream, LogDescription(SCHEMA)) for stream in streams]
    made.set()
    go.wait()
    begin = last = time.perf_counter()
    at = [int(random.integers(0, _KEPT_ROWS // 2)) for _ in streams]
    total = 0
    while last - begin < seconds:
        now = time.perf_counter()
        counts = random.poisson(rate * (now - last), len(streams))
        last = now
        for place_, (writer, count) in enumerate(zip(writers, counts.tolist(), strict=True)):
            if not count:
                continue
            if at[place_] + count > _KEPT_ROWS:
                at[place_] = 0
            start = at[place_]
            frame = {name: column.slice(start, start + count) for name, column in columns.items()}
            writer.append(frame, count, time.time_ns(), producer=1)
            at[place_] += count
            total += count
        time.sleep(max(0.0, now + tick - time.perf_counter()))
    rows.value = total
    done.value = 1
    for writer in writers:
        writer.close()
