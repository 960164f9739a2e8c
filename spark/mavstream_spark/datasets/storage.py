"""Files as Spark sees them: local, HDFS or an object store, through Hadoop's file systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TAIL_BYTES = 1 << 12
"""Enough for the footer of most files; longer answers from Java take two packets, the second after 40 ms."""
_TRAILER_BYTES = 8
"""A Parquet file ends with the length of its footer in four bytes and a magic number of four."""


class Storage:
    """File operations on the file system of a folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        # Everything behind the gateway is typed as Any.
        context: Any = spark.sparkContext
        # Resolved once: each part of a Java name is a message to the gateway.
        self._path: Any = context._jvm.org.apache.hadoop.fs.Path
        self._folder = self._path(folder)
        self._files = self._folder.getFileSystem(context._jsc.hadoopConfiguration())

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder."""
        return bool(self._files.exists(self._path(path)))

    def names(self, path: str) -> list[str]:
        """Return the sorted names of the files and folders in a folder."""
        return sorted(str(each.getPath().getName()) for each in self._files.listStatus(self._path(path)))

    def files(self, path: str) -> list[tuple[str, int]]:
        """Return all files below a folder, as relative paths with their sizes in bytes."""
        files = []
        for each in self._files.listStatus(self._path(path)):
            name = str(each.getPath().getName())
            if each.isDirectory():
                files += [(f"{name}/{below}", size) for below, size in self.files(f"{path}/{name}")]
            else:
                files.append((name, int(each.getLen())))
        return files

    def parquet_rows(self, path: str, size: int) -> int:
        """Return the number of rows of a Parquet file of `size` bytes, from its footer alone."""
        tail = self._tail(path, max(size - _TAIL_BYTES, 0))
        footer = int.from_bytes(tail[-_TRAILER_BYTES:-4], "little") + _TRAILER_BYTES
        if footer > len(tail):
            tail = self._tail(path, max(size - footer, 0))
        # Offsets in a footer count from the start of the file, but only row groups are read by them.
        return int(pyarrow.parquet.read_metadata(pa.BufferReader(tail)).num_rows)

    def _tail(self, path: str, offset: int) -> bytes:
        stream = self._files.open(self._path(path))
        try:
            stream.seek(offset)
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents where they are missing."""
        self._files.mkdirs(self._path(path))

    def rename(self, path: str, target: str) -> bool:
        """Move a file or folder and return whether that worked; atomic except on object stores."""
        return bool(self._files.rename(self._path(path), self._path(target)))

    def remove(self, path: str) -> None:
        """Delete a folder and everything in it; does nothing if it is missing."""
        self._files.delete(self._path(path), True)

    def write(self, path: str, text: str) -> None:
        """Write a small text file."""
        stream = self._files.create(self._path(path), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def read(self, path: str) -> str | None:
        """Read a small text file; None if it is missing."""
        if not self.exists(path):
            return None
        return self._tail(path, 0).decode()

    def local_path(self, path: str) -> str | None:
        """Return the path as programs of this machine use it; None if it is not on a local file system."""
        uri = self._files.makeQualified(self._path(path)).toUri()
        return str(uri.getPath()) if uri.getScheme() == "file" else None

    def sibling(self, path: str, name: str) -> str:
        """Return the path of another name in the same folder."""
        return f"{self._path(path).getParent().toString()}/{name}"

    def name(self, path: str) -> str:
        """Return the last part of a path."""
        return str(self._path(path).getName())
