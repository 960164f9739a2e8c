"""Stored tables for plans on Spark: each version is a file in a format that a server accepts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from mavstream_protocol import InvalidObject, Schema
from mavstream_protocol.instants import parse_instant
from mavstream_protocol.table_rows.formats import TooManyRows, read_rows
from mavstream_protocol.table_rows.media import ENDINGS
from mavstream_spark.errors import InvalidJob, UnreadableInput

_MAX_BYTES = 1 << 30
"""Tables are read by the driver; this is far more than a server accepts."""


class TableVersion(NamedTuple):
    """Rows of a table and the time from which they are current: microseconds, None for always."""

    since: int | None
    rows: pa.RecordBatch


@dataclass(slots=True)
class TableData:
    """A table with its versions in the order of time."""

    schema: Schema
    versions: list[TableVersion] = field(default_factory=list)


def read_tables(given: Iterable[str]) -> dict[str, TableData]:
    """Read versions of tables, given as `NAME=FILE` or `NAME=FILE@INSTANT`.

    All versions of a table have the fields of the one given first. Raises InvalidJob or UnreadableInput.
    """
    tables: dict[str, TableData] = {}
    for text in given:
        name, path, since = _parts(text)
        known = tables.get(name)
        schema, rows = _read(path, None if known is None else known.schema)
        tables.setdefault(name, TableData(schema)).versions.append(TableVersion(since, rows))
    for name, table in tables.items():
        table.versions.sort(key=lambda version: (version.since is not None, version.since))
        stamps = [version.since for version in table.versions]
        if len(set(stamps)) < len(stamps):
            raise InvalidJob(
                f"table '{name}' has two versions from the same time on: give the time from which each is "
                f"current, as in --table {name}=FILE@2026-03-02T12:00:00Z"
            )
    return tables


def _parts(text: str) -> tuple[str, Path, int | None]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise InvalidJob(f"--table expects NAME=FILE or NAME=FILE@INSTANT, got '{text}'")
    path, at, instant = file.rpartition("@")
    if at and not Path(file).exists():
        try:
            return name, Path(path), parse_instant(instant)
        except ValueError as error:
            raise InvalidJob(f"--table {text}: {error}") from None
    return name, Path(file), None


def _read(path: Path, schema: Schema | None) -> tuple[Schema, pa.RecordBatch]:
    kind = ENDINGS.get(path.suffix.lower())
    if kind is None:
        raise UnreadableInput(f"table file '{path}': unknown ending, expected one of {', '.join(ENDINGS)}")
    try:
        return read_rows(kind, path.read_bytes(), schema, _MAX_BYTES)
    except OSError as error:
        raise UnreadableInput(f"table file '{path}' cannot be read: {error.strerror}") from None
    except TooManyRows as error:
        raise UnreadableInput(f"table file '{path}': {error}") from None
    except InvalidObject as error:
        reasons = "; ".join(item.detail for item in error.items[:3])
        raise UnreadableInput(f"table file '{path}': {reasons}") from None
