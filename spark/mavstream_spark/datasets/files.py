"""Parquet files that Python workers encode, and how they are saved on any storage.

On a local file system (this machine's, or one that all workers mount) the workers save the files. On any
other storage only Spark can, and it has no sink for files as bytes. Its text sink writes the bytes of a row
and then the line separator. So each file is one row without its last four bytes, which are the same in every
Parquet file, and these four are the line separator.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from mavstream_protocol.manifest import InvalidDataset

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame

    from mavstream_spark.datasets.storage import Storage

_MAGIC = b"PAR1"
_ATTEMPTS = ".attempts"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of a dataset, with what the task that encoded it knows about its rows."""

    stream: str
    day: str
    slice: int
    """The number of its slice within the stream: files sort by it as their rows do."""
    rows: int
    first: int
    last: int
    """Times of the first and the last row, in microseconds."""
    hashes: int
    """The sum of the rows' hashes."""
    size: int
    """Bytes of the file."""

    @property
    def path(self) -> str:
        """The path inside the dataset's folder."""
        return f"{self.stream}/day={self.day}/part-{self.slice:05d}.snappy.parquet"

    @property
    def key(self) -> str:
        """The path as one name."""
        return f"{self.stream}-{self.day}-{self.slice}"


EncodedFile = tuple[WrittenFile, bytes]


def encode_parquet(rows: pa.Table, event_time: str) -> bytes:
    """Encode sorted rows as a Parquet file."""
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(
        rows,
        sink,
        compression="snappy",
        store_schema=False,
        # Times are sorted and seldom equal: differences are short, a dictionary would be long.
        use_dictionary=[name for name in rows.column_names if name != event_time],
        column_encoding={event_time: "DELTA_BINARY_PACKED"},
    )
    return bytes(sink.getvalue())


def save_files(files: RDD[EncodedFile], storage: Storage, folder: str) -> list[WrittenFile]:
    """Run the job that encodes files and save them below a folder; raises InvalidDataset."""
    local = storage.local_path(folder)
    return _save_by_workers(files, Path(local)) if local else _save_by_spark(files, storage, folder)


def _save_by_workers(files: RDD[EncodedFile], folder: Path) -> list[WrittenFile]:
    # Attempts of one task may run at the same time: each has its own file, and a rename decides. An attempt
    # that outlives the job finds its folder gone.
    attempts = folder / _ATTEMPTS
    attempts.mkdir(parents=True)
    written = files.map(_saver(folder, attempts)).collect()
    shutil.rmtree(attempts)
    return written


def _saver(folder: Path, attempts: Path) -> Callable[[EncodedFile], WrittenFile]:
    def save(file: EncodedFile) -> WrittenFile:
        written, content = file
        attempt = attempts / secrets.token_hex(8)
        attempt.write_bytes(content)
        target = folder / written.path
        target.parent.mkdir(parents=True, exist_ok=True)
        attempt.replace(target)
        return written

    return save


def _save_by_spark(files: RDD[EncodedFile], storage: Storage, folder: str) -> list[WrittenFile]:
    from pyspark import StorageLevel

    files = files.persist(StorageLevel.DISK_ONLY)
    try:
        written = files.map(lambda file: file[0]).collect()
        contents = files.map(lambda file: (file[0].key, file[1].removesuffix(_MAGIC)))
        frame: DataFrame = contents.toDF("file STRING, content BINARY")
        rows = frame.selectExpr("file", "CAST(content AS STRING) AS value")
        attempts = f"{folder}/{_ATTEMPTS}"
        rows.write.partitionBy("file").text(attempts, compression="none", lineSep=_MAGIC.decode())
    finally:
        files.unpersist()
    _move_into_place({file.key: file for file in written}, storage, attempts, folder)
    return written


def _move_into_place(files: dict[str, WrittenFile], storage: Storage, attempts: str, folder: str) -> None:
    for path in {file.path.rpartition("/")[0] for file in files.values()}:
        storage.make_folder(f"{folder}/{path}")
    for path, size in storage.files(attempts) if files else ():
        key = path.partition("/")[0].removeprefix("file=")
        file = files.pop(key, None)
        if file is None:
            # Such as _SUCCESS, which a session that is not ours may have configured.
            continue
        if size != file.size:
            raise InvalidDataset(
                f"'{attempts}/{path}' has {size} bytes, expected {file.size}: Spark did not write what it "
                "was given, or something else writes there; run the job again"
            )
        if not storage.rename(f"{attempts}/{path}", f"{folder}/{file.path}"):
            raise InvalidDataset(f"'{folder}/{file.path}' could not be created: check the permissions there")
    if files:
        missing = ", ".join(file.path for file in files.values())
        raise InvalidDataset(f"'{folder}' lacks {missing}: something else writes there, run the job again")
    storage.remove(attempts)
