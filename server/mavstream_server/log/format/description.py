"""The description of a log: its schema and its event time, stored as JSON beside the segments."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.log.errors import LogCorruptError, LogMismatchError, LogMissingError

VERSION = 1
_FILE = "log.json"


@dataclass(frozen=True, slots=True)
class LogDescription:
    """The schema, event time and lateness of a log; fixed when the log is created.

    `event_time` names a timestamp field without nulls. Without it, arrival time is used and no row is late.
    """

    schema: Schema
    event_time: str | None = None
    lateness_us: int = 0

    def check(self, path: Path) -> None:
        """Raise LogMismatchError if the description contradicts itself."""
        names = self.schema.names
        if len(set(names)) != len(names):
            raise LogMismatchError(path, f"field names must be distinct, got {', '.join(names)}")
        if not 0 <= self.lateness_us < 1 << 62:
            raise LogMismatchError(path, f"lateness must be 0 us or more, got {self.lateness_us}")
        if self.event_time is None:
            if self.lateness_us:
                raise LogMismatchError(
                    path, "lateness requires an event time; name the field, or leave lateness at 0"
                )
            return
        field = self.schema.get(self.event_time)
        if field is None or field.type is not FieldType.TIMESTAMP or field.nullable:
            got = "no such field" if field is None else f"{field.type}{' nullable' * field.nullable}"
            raise LogMismatchError(
                path, f"event time {self.event_time!r} must be a timestamp field without nulls, got {got}"
            )


def save_description(path: Path, description: LogDescription) -> None:
    """Write the description to a log's directory, atomically."""
    text = json.dumps(
        {
            "version": VERSION,
            "fields": [
                {"name": field.name, "type": field.type.value, "nullable": field.nullable}
                for field in description.schema
            ],
            "event_time": description.event_time,
            "lateness_us": description.lateness_us,
        },
        indent=2,
    )
    draft = path / (_FILE + ".new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path / _FILE)


def load_description(path: Path) -> LogDescription:
    """Read the description of the log in a directory; raise LogMissingError if there is none."""
    try:
        text = (path / _FILE).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise LogMissingError(
            path, f"no log here (expected a directory with {_FILE}); create it first"
        ) from None
    try:
        data = json.loads(text)
        version = data["version"]
        fields = tuple(
            Field(item["name"], FieldType(item["type"]), bool(item["nullable"])) for item in data["fields"]
        )
        description = LogDescription(Schema(fields), data["event_time"], int(data["lateness_us"]))
    except (ValueError, KeyError, TypeError) as error:
        raise LogCorruptError(
            path / _FILE, f"not a log description ({error!r}); restore it from a backup"
        ) from error
    if version != VERSION:
        raise LogMismatchError(path, f"expected log version {VERSION}, got {version}; use a matching release")
    return description


def ensure_description(path: Path, wanted: LogDescription | None) -> LogDescription:
    """Return a log's description; save the wanted one if there is none.

    Raises LogMismatchError if they differ, LogMissingError if there is none and none is wanted.
    """
    try:
        found = load_description(path)
    except LogMissingError:
        if wanted is None:
            raise
        wanted.check(path)
        save_description(path, wanted)
        return wanted
    if wanted is not None and wanted != found:
        raise LogMismatchError(
            path, f"expected the log's description {found}, got {wanted}; use another directory"
        )
    return found
