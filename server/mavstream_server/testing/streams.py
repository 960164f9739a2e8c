"""Scripted streams: real logs that a test writes row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.columns.column import Column
from mavstream_server.log.format.description import LogDescription
from mavstream_server.log.format.layout import FrameKind
from mavstream_server.log.options import LogOptions
from mavstream_server.log.reader import LogReader
from mavstream_server.log.writer import LogWriter
from mavstream_server.testing.clock import ManualClock


class ScriptedStream:
    """A stream in a directory of its own, written by a test.

    Fields are given as text: `ts timestamp, home int, room string null`.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        fields: str,
        clock: ManualClock,
        *,
        event_time: str | None = None,
        lateness: int = 0,
        options: LogOptions | None = None,
    ) -> None:
        self.name = name
        self.schema = parse_fields(fields)
        self.event_time = event_time
        self._clock = clock
        description = LogDescription(self.schema, event_time, lateness)
        self.writer = LogWriter(path / name, description, options or LogOptions())
        self.reader = LogReader(path / name)

    @property
    def shape(self) -> StreamShape:
        """The schema and event time, as inference needs them."""
        return StreamShape(self.schema, self.event_time)

    def columns(
        self,
        columns: Mapping[str, Sequence[Any]],
        producer: int = 0,
        sequence: int = 0,
        arrival: int | None = None,
    ) -> None:
        """Append rows, given as columns of Python values, in one frame; by default it arrives now."""
        made = {field.name: Column.from_list(field.type, columns[field.name]) for field in self.schema}
        size = len(next(iter(columns.values())))
        arrival = self._clock.now() if arrival is None else arrival
        self.writer.append(made, size, arrival, producer=producer, sequence=sequence)

    def rows(self, *rows: Sequence[Any], producer: int = 0, frame: int | None = None) -> None:
        """Append rows, given as tuples in schema order, in frames of `frame` rows (default: one frame)."""
        step = frame or max(len(rows), 1)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            names = self.schema.names
            self.columns({n: [row[i] for row in part] for i, n in enumerate(names)}, producer)

    def add_fields(self, fields: str) -> None:
        """Add nullable fields: rows are written with them from here on, and plans that are made see them."""
        added = parse_fields(fields).fields
        self.writer.add_fields(added)
        self.schema = Schema((*self.schema, *added))

    def mark(self, kind: FrameKind, producer: int = 0, watermark: int | None = None) -> None:
        """Append a mark."""
        self.writer.mark(kind, self._clock.now(), producer=producer, watermark=watermark)

    def complete(self) -> None:
        """Mark the stream as complete: all windows close and queries end."""
        self.mark(FrameKind.COMPLETE)

    def close(self) -> None:
        """Close the log."""
        self.writer.close()


def parse_fields(text: str) -> Schema:
    """Parse `name type [null], ...`."""
    fields = []
    for part in text.split(","):
        name, type_, *rest = part.split()
        fields.append(Field(name, FieldType(type_), rest == ["null"]))
    return Schema(tuple(fields))
