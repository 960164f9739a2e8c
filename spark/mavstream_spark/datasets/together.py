"""Several streams written by one job: rows travel to their slice as packed columns, which one task writes.

For folders of this machine, which Python's workers can write to themselves. Elsewhere Spark writes, a stream
at a time; rows, their order and their checksums are the same.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from mavstream_spark.datasets.hashes import checksum_of_rows
from mavstream_spark.datasets.slices import Sliced, pack, runs, tasks_of, unpacked

if TYPE_CHECKING:
    from pyspark import RDD

Pack = tuple[int, tuple[int, bytes]]
"""Rows on their way: the task that writes them, their slice, and they themselves."""
Make = Callable[[int], Iterable[tuple[str, pa.RecordBatch]]]
"""Gives batches of rows by the names of their streams, for one of the numbers that a job goes through."""

# Rows that are cut into slices together: few at a time make small packs, many take memory.
_CUT_ROWS = 100_000
_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file, with what the task saw that wrote it."""

    stream: str
    path: str
    """From the dataset's folder on."""
    rows: int
    first: int
    last: int
    checksum: int


def write_together(
    numbers: RDD[int], make: Make, streams: Sequence[Sliced], folder: str, tasks: int
) -> list[WrittenFile]:
    """Make the rows of all numbers and write them, sorted; rows outside of a stream's time are left out."""
    # Not a DataFrame: nothing in it is Spark's to look into, and planning two steps of Python takes it a
    # tenth of a second.
    packs = numbers.mapPartitions(_cutter(make, streams, tasks_of(streams, tasks)))
    return packs.partitionBy(tasks, int).mapPartitions(_writer(streams, folder)).collect()


def _cutter(
    make: Make, streams: Sequence[Sliced], tasks: Sequence[int]
) -> Callable[[Iterable[int]], Iterator[Pack]]:
    known = {stream.name: stream for stream in streams}

    def cut_all(numbers: Iterable[int]) -> Iterator[Pack]:
        _settle_in()
        waiting: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        count = 0
        for number in numbers:
            for name, batch in make(number):
                waiting[name].append(batch)
                count += batch.num_rows
            if count >= _CUT_ROWS:
                yield from _packed(known, waiting, tasks)
                waiting.clear()
                count = 0
        yield from _packed(known, waiting, tasks)

    return cut_all


def _packed(
    known: dict[str, Sliced], waiting: dict[str, list[pa.RecordBatch]], tasks: Sequence[int]
) -> Iterator[Pack]:
    for name, batches in waiting.items():
        for number, rows in known[name].cut(pa.Table.from_batches(batches)):
            yield tasks[number], (number, pack(rows))


def _writer(streams: Sequence[Sliced], folder: str) -> Callable[[Iterable[Pack]], Iterator[WrittenFile]]:
    owners = [stream for stream in streams for _ in range(stream.slices)]

    def write_all(packs: Iterable[Pack]) -> Iterator[WrittenFile]:
        _settle_in()
        # A task has one large slice or some small ones, all of them in memory.
        slices: dict[int, list[pa.Table]] = defaultdict(list)
        for _, (number, value) in packs:
            slices[number].append(unpacked(value))
        for number, parts in slices.items():
            yield from _write_slice(owners[number], number, pa.concat_tables(parts), Path(folder))

    return write_all


def _write_slice(stream: Sliced, number: int, rows: pa.Table, folder: Path) -> Iterator[WrittenFile]:
    # All columns, so that rows of one time have one order too.
    names = (stream.time, *(name for name in rows.column_names if name != stream.time))
    keys: list[Any] = [(name, "ascending", "at_start") for name in names]
    rows = rows.take(pc.sort_indices(rows, sort_keys=keys)).cast(stream.schema)
    times = stream.times(rows)
    for day, begin, end in runs(times // _DAY):
        path = f"{stream.name}/day={np.datetime64(day, 'D')}/part-{number - stream.first:05d}.snappy.parquet"
        part = rows.slice(begin, end - begin)
        _write_file(part, stream.time, folder / path)
        yield WrittenFile(
            stream.name, path, end - begin, int(times[begin]), int(times[end - 1]), checksum_of_rows(part)
        )


@cache
def _settle_in() -> None:
    """Keep collections short in this worker: what it has imported is there to stay.

    Spark collects between any two tasks of a worker, and looking at all modules takes 30 ms each time.
    """
    gc.freeze()


def _write_file(rows: pa.Table, time: str, path: Path) -> None:
    """Write a file that is whole or not there; a task that runs again takes the same names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    pyarrow.parquet.write_table(
        rows,
        unfinished,
        compression="snappy",
        store_schema=False,
        # Times are sorted and seldom the same: differences say them shortest, a dictionary at length.
        use_dictionary=[name for name in rows.column_names if name != time],
        column_encoding={time: "DELTA_BINARY_PACKED"},
    )
    unfinished.replace(path)
