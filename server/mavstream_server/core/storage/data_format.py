"""The format version of a data directory: which programs can read it, and upgrades from earlier versions.

The file `FORMAT` has the version, and the release that wrote it. A directory with content and without the
file is of version 1, which had none.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from mavstream_server.core.storage.data_directory import LOCK_FILE, DataUnusable

FORMAT_VERSION = 2
"""The version that is written. Version 1 has no FORMAT file, and is otherwise the same."""
FORMAT_FILE = "FORMAT"
_OLDEST = 1
_DRAFT = "FORMAT.new"
_UNKNOWN = "an unknown release"
_MOST_BYTES = 4096


class DataFormat(NamedTuple):
    """The format of a data directory."""

    version: int
    release: str
    """The release of the program that wrote the version."""


class FormatGarbled(DataUnusable):
    """The FORMAT file of a data directory cannot be read."""

    code = "format_garbled"


def open_format(data: Path) -> DataFormat:
    """Return the format that a locked data directory had, and bring it to the present one.

    A new directory gets the present version. Raises DataUnusable if this program cannot use the directory,
    which then stays as it is.
    """
    found = check_format(data) or DataFormat(FORMAT_VERSION, _release())
    # Versions 1 and 2 have the same files, so that the upgrade consists in the stamp.
    if found.version < FORMAT_VERSION or not (data / FORMAT_FILE).exists():
        _write(data, DataFormat(FORMAT_VERSION, _release()))
    return found


def check_format(data: Path) -> DataFormat | None:
    """Return the format of a data directory without changing it; None if the directory is empty.

    Raises FormatGarbled, and DataUnusable if the format is one that this program does not read.
    """
    file = data / FORMAT_FILE
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES)
    except FileNotFoundError:
        return None if _is_empty(data) else DataFormat(_OLDEST, _UNKNOWN)
    except OSError as error:
        raise FormatGarbled(
            f"{file} cannot be read ({error.strerror}): expected a file with the format version of the data "
            "directory; check what it is and who may read it"
        ) from None
    found = _parse(file, content)
    if found.version > FORMAT_VERSION:
        raise DataUnusable(
            f"the data directory {data} has format version {found.version}, written by release "
            f"{found.release}; this program, release {_release()}, reads versions {_OLDEST} to "
            f"{FORMAT_VERSION}: use release {found.release} or a later one, or restore a backup that was "
            "made before the upgrade"
        )
    return found


def _parse(file: Path, content: bytes) -> DataFormat:
    try:
        values = json.loads(content)
        found = DataFormat(values["version"], values["release"])
    except (ValueError, TypeError, KeyError, RecursionError):
        found = None
    if found is None or type(found.version) is not int or found.version < _OLDEST:
        raise FormatGarbled(
            f'{file} is garbled: expected {{"version": {FORMAT_VERSION}, "release": "{_release()}"}}, got '
            f"{content[:60]!r}; restore it from a backup, or remove it if no later release than this one has "
            "used the directory"
        )
    return DataFormat(found.version, str(found.release)[:60])


def _is_empty(data: Path) -> bool:
    """Return whether a directory has nothing but what a first start leaves that died early."""
    return all(path.name in (LOCK_FILE, _DRAFT) for path in data.iterdir())


def _write(data: Path, stamp: DataFormat) -> None:
    """Write the file atomically: a process that dies leaves the old one, or none."""
    draft = data / _DRAFT
    try:
        with draft.open("wb") as stream:
            stream.write(json.dumps(stamp._asdict()).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        draft.rename(data / FORMAT_FILE)
        directory = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise DataUnusable(
            f"the data directory {data} cannot be used: its format version cannot be written "
            f"({error.strerror}); check the space on the disk and who may write the directory"
        ) from None


def _release() -> str:
    try:
        return version("mavstream")
    except PackageNotFoundError:  # run from source files that were not installed
        return _UNKNOWN
