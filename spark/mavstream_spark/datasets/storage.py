"""Folders as Spark sees them: local, HDFS or an object store, through Hadoop's own file systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Storage:
    """File operations at the place of a folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        # Everything behind the gateway is typed as Any.
        context: Any = spark.sparkContext
        # Found once: each part of a Java name is a message to the gateway.
        self._path: Any = context._jvm.org.apache.hadoop.fs.Path
        self._folder = self._path(folder)
        self._files = self._folder.getFileSystem(context._jsc.hadoopConfiguration())

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return bool(self._files.exists(self._path(path)))

    def is_empty(self, path: str) -> bool:
        """Whether a folder has nothing in it."""
        return not self.names(path)

    def names(self, path: str) -> list[str]:
        """Return the names of what is in a folder, sorted."""
        return sorted(str(each.getPath().getName()) for each in self._files.listStatus(self._path(path)))

    def files(self, path: str) -> list[tuple[str, int]]:
        """Return all files in a folder and below it, as paths from there on, with their bytes."""
        found = []
        for each in self._files.listStatus(self._path(path)):
            name = str(each.getPath().getName())
            if each.isDirectory():
                found += [(f"{name}/{below}", size) for below, size in self.files(f"{path}/{name}")]
            else:
                found.append((name, int(each.getLen())))
        return found

    def tail(self, path: str, begin: int) -> bytes:
        """Read a file from a byte on."""
        stream = self._files.open(self._path(path))
        try:
            stream.seek(begin)
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def rename(self, path: str, target: str) -> bool:
        """Move a folder; on one file system this happens at once or not at all."""
        return bool(self._files.rename(self._path(path), self._path(target)))

    def remove(self, path: str) -> None:
        """Delete a folder with all that is in it; nothing if it is not there."""
        self._files.delete(self._path(path), True)

    def write(self, path: str, text: str) -> None:
        """Write a small text file."""
        stream = self._files.create(self._path(path), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def read(self, path: str) -> str | None:
        """Read a small text file; None if it is not there."""
        if not self.exists(path):
            return None
        stream = self._files.open(self._path(path))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def local_path(self, path: str) -> str | None:
        """Return a path as this machine's programs write it; None if it lies elsewhere."""
        found = self._files.makeQualified(self._path(path)).toUri()
        return str(found.getPath()) if found.getScheme() == "file" else None

    def sibling(self, path: str, name: str) -> str:
        """Return the path of another name beside a path."""
        return f"{self._path(path).getParent().toString()}/{name}"

    def name(self, path: str) -> str:
        """Return the last part of a path."""
        return str(self._path(path).getName())
