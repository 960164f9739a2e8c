"""Stored tables for plans on Spark: files such as a server takes, a version each."""

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

_MOST_BYTES = 1 << 30
"""Tables are read by the driver, as a server reads them; this is far more than one takes."""


class TableVersion(NamedTuple):
    """Rows of a table, and from when on they are current: microseconds, None for always."""

    since: int | None
    rows: pa.RecordBatch


@dataclass(slots=True)
class TableData:
    """A table with its versions, in the order of time."""

    schema: Schema
    versions: list[TableVersion] = field(default_factory=list)


def read_tables(given: Iterable[str]) -> dict[str, TableData]:
    """Read tables given as `NAME=FILE` or `NAME=FILE@INSTANT`, a version each; raises InvalidJob.

    All versions of a table have the fields of the first one that is given.
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
                f"table '{name}' has two versions from the same time on: say from when each is current, "
                f"as in --table {name}=FILE@2026-03-02T12:00:00Z"
            )
    return tables


def _parts(text: str) -> tuple[str, Path, int | None]:
    name, equals, place = text.partition("=")
    if not (name and equals and place):
        raise InvalidJob(f"--table expects NAME=FILE or NAME=FILE@INSTANT, and '{text}' came")
    path, at, instant = place.rpartition("@")
    if at and not Path(place).exists():
        try:
            return name, Path(path), parse_instant(instant)
        except ValueError as error:
            raise InvalidJob(f"--table {text}: {error}") from None
    return name, Path(place), None


def _read(path: Path, schema: Schema | None) -> tuple[Schema, pa.RecordBatch]:
    kind = ENDINGS.get(path.suffix.lower())
    if kind is None:
        raise UnreadableInput(
            f"table file '{path}': its ending says not what it is, expected is one of {', '.join(ENDINGS)}"
        )
    try:
        return read_rows(kind, path.read_bytes(), schema, _MOST_BYTES)
    except OSError as error:
        raise UnreadableInput(f"table file '{path}' cannot be read: {error.strerror}") from None
    except TooManyRows as error:
        raise UnreadableInput(f"table file '{path}': {error}") from None
    except InvalidObject as error:
        reasons = "; ".join(item.detail for item in error.items[:3])
        raise UnreadableInput(f"table file '{path}': {reasons}") from None
