"""Writes streams whose rows Python makes as Arrow batches, all streams of a dataset in one Spark job.

The first tasks make batches and split them into slices of time, which travel as Arrow IPC. The other tasks
sort each slice, hash its rows and encode them as Parquet; `files` saves what they encoded.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mavstream_spark.datasets.checksum import sum_of_hashes
from mavstream_spark.datasets.files import EncodedFile, WrittenFile, encode_parquet, save_files
from mavstream_spark.datasets.slices import SlicedStream, assign_tasks, from_ipc, runs, to_ipc

if TYPE_CHECKING:
    from pyspark import RDD

    from mavstream_spark.datasets.storage import Storage

Fragment = tuple[int, tuple[int, bytes]]
"""Rows on their way to a slice: the task that writes them, the number of the slice, the rows as Arrow IPC."""
MakeBatches = Callable[[int], Iterable[tuple[str, pa.RecordBatch]]]
"""Makes the batches of one number of the job's range, each with the name of its stream."""

# Rows that are split into slices together: fewer make small fragments, more take memory.
_SPLIT_ROWS = 100_000
_DAY = 86_400_000_000


def write_batches(
    numbers: RDD[int],
    make: MakeBatches,
    streams: Sequence[SlicedStream],
    storage: Storage,
    folder: str,
    tasks: int,
) -> list[WrittenFile]:
    """Make the batches of all numbers and write their rows, sorted.

    Rows outside of a stream's time are left out. `tasks` is the number of tasks that sort and encode.
    """
    # An RDD, not a DataFrame: Spark never looks into the fragments, and would plan the job for 0.1 s.
    fragments = numbers.mapPartitions(_splitter(make, streams, assign_tasks(streams, tasks)))
    files = fragments.partitionBy(tasks, int).mapPartitions(_encoder(streams))
    return save_files(files, storage, folder)


def _splitter(
    make: MakeBatches, streams: Sequence[SlicedStream], tasks: Sequence[int]
) -> Callable[[Iterable[int]], Iterator[Fragment]]:
    by_name = {stream.name: stream for stream in streams}

    def fragments(pending: dict[str, list[pa.RecordBatch]]) -> Iterator[Fragment]:
        for name, batches in pending.items():
            for number, rows in by_name[name].split(pa.Table.from_batches(batches)):
                yield tasks[number], (number, to_ipc(rows))

    def split_all(numbers: Iterable[int]) -> Iterator[Fragment]:
        _freeze_imports()
        pending: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        count = 0
        for number in numbers:
            for name, batch in make(number):
                pending[name].append(batch)
                count += batch.num_rows
            if count >= _SPLIT_ROWS:
                yield from fragments(pending)
                pending.clear()
                count = 0
        yield from fragments(pending)

    return split_all


def _encoder(streams: Sequence[SlicedStream]) -> Callable[[Iterable[Fragment]], Iterator[EncodedFile]]:
    owners = [stream for stream in streams for _ in range(stream.slices)]

    def encode_all(fragments: Iterable[Fragment]) -> Iterator[EncodedFile]:
        _freeze_imports()
        # A task has one large slice or several small ones, all of them in memory.
        slices: dict[int, list[pa.Table]] = defaultdict(list)
        for _, (number, encoded) in fragments:
            slices[number].append(from_ipc(encoded))
        for number, parts in slices.items():
            yield from _encode_slice(owners[number], number, pa.concat_tables(parts))

    return encode_all


def _encode_slice(stream: SlicedStream, number: int, rows: pa.Table) -> Iterator[EncodedFile]:
    # By all columns, so that rows of the same time have one order too.
    names = (stream.event_time, *(name for name in rows.column_names if name != stream.event_time))
    keys: list[Any] = [(name, "ascending", "at_start") for name in names]
    rows = rows.take(pc.sort_indices(rows, sort_keys=keys)).cast(stream.schema)
    times = stream.times(rows)
    for day, begin, end in runs(times // _DAY):
        part = rows.slice(begin, end - begin)
        content = encode_parquet(part, stream.event_time)
        written = WrittenFile(
            stream=stream.name,
            day=str(np.datetime64(day, "D")),
            slice=number - stream.first_slice,
            rows=end - begin,
            first=int(times[begin]),
            last=int(times[end - 1]),
            hashes=sum_of_hashes(part),
            size=len(content),
        )
        yield written, content


@cache
def _freeze_imports() -> None:
    """Exempt the imported modules of this worker from garbage collection.

    Spark collects between any two tasks of a worker, and scanning all modules takes 30 ms each time.
    """
    gc.freeze()
