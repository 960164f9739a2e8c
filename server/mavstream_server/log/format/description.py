"""The description of a log: its schema and its event time, stored as JSON beside the segments."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.core.storage import failpoints
from mavstream_server.log.errors import LogCorruptError, LogMismatchError, LogMissingError
from mavstream_server.log.format.segment import sync_directory

VERSION = 1
_GROWN = 2
"""The version of a log that has got fields since it was created: earlier releases cannot read it."""
_CHANGED = 3
"""The version of a log that has got another schema since it was created."""
_FILE = "log.json"


class EarlierSchema(NamedTuple):
    """A schema that a log had before it got another one."""

    before: int
    """The serial number of the first segment that does not have it any more."""
    schema: Schema


@dataclass(frozen=True, slots=True)
class LogDescription:
    """The schema, event time and lateness of a log.

    `event_time` names a timestamp field without nulls. Without it, arrival time is used and no row is late.
    The log of a stream can get nullable fields, which are null in the rows before; a result log can get
    another schema, which the rows before do not have.
    """

    schema: Schema
    event_time: str | None = None
    lateness_us: int = 0
    since: tuple[int, ...] = ()
    """For each field that was added, in order: the serial number of the first segment that has it."""
    earlier: tuple[EarlierSchema, ...] = ()
    """The schemas of earlier segments, the oldest first."""

    def at(self, serial: int) -> LogDescription:
        """Return the description that holds for a segment: this one, or one with an earlier schema."""
        for before, schema in self.earlier:
            if serial < before:
                return replace(self, schema=schema, since=(), earlier=())
        return self

    def width_of(self, serial: int) -> int:
        """Return how many fields a segment has: those that the log had when it was begun."""
        return len(self.schema) - len(self.since) + bisect_right(self.since, serial)

    def with_fields(self, added: Sequence[Field], serial: int) -> LogDescription:
        """Return the description with more nullable fields, from the segment of this serial number on."""
        schema = Schema((*self.schema, *added))
        return replace(self, schema=schema, since=(*self.since, *[serial] * len(added)))

    def with_schema(self, schema: Schema, serial: int, oldest: int) -> LogDescription:
        """Return the description with another schema from the segment of this serial number on.

        `oldest` is the serial number of the oldest segment; the log must not have got fields one by one.
        """
        assert not self.since
        earlier = (*self.earlier, EarlierSchema(serial, self.schema))
        return replace(self, schema=schema, earlier=tuple(each for each in earlier if each.before > oldest))

    def extends(self, other: LogDescription) -> bool:
        """Return whether it is another one with any number of nullable fields added, or none."""
        same = (self.event_time, self.lateness_us) == (other.event_time, other.lateness_us)
        return same and self.schema.extends(other.schema)

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
    fields = _fields_json(description.schema)
    for field, serial in zip(reversed(fields), reversed(description.since), strict=False):
        field["since"] = serial
    data: dict[str, Any] = {
        "version": _CHANGED if description.earlier else _GROWN if description.since else VERSION,
        "fields": fields,
        "event_time": description.event_time,
        "lateness_us": description.lateness_us,
    }
    if description.earlier:
        data["earlier"] = [
            {"before": before, "fields": _fields_json(schema)} for before, schema in description.earlier
        ]
    text = json.dumps(data, indent=2)
    draft = path / (_FILE + ".new")
    failpoints.hit("log.describe.before")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path / _FILE)
    if description.since or description.earlier:
        sync_directory(path)  # segments with these fields could not be read without it
    failpoints.hit("log.describe.after")


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
        since = tuple(int(item["since"]) for item in data["fields"] if "since" in item)
        earlier = tuple(
            EarlierSchema(int(each["before"]), _schema(each["fields"])) for each in data.get("earlier", ())
        )
        description = LogDescription(
            _schema(data["fields"]), data["event_time"], int(data["lateness_us"]), since, earlier
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LogCorruptError(
            path / _FILE, f"not a log description ({error!r}); restore it from a backup"
        ) from error
    if version not in (VERSION, _GROWN, _CHANGED):
        expected = f"expected log version {_CHANGED} or lower"
        raise LogMismatchError(path, f"{expected}, got {version}; use a matching release")
    return description


def _fields_json(schema: Schema) -> list[dict[str, Any]]:
    return [{"name": each.name, "type": each.type.value, "nullable": each.nullable} for each in schema]


def _schema(items: Iterable[Mapping[str, Any]]) -> Schema:
    return Schema(
        tuple(Field(item["name"], FieldType(item["type"]), bool(item["nullable"])) for item in items)
    )


def stored_description(path: Path, wanted: LogDescription) -> LogDescription:
    """Return a log's description if it is the wanted one, with fewer or more nullable fields at its end.

    The wanted one if there is none. Raises LogMismatchError otherwise.
    """
    try:
        found = load_description(path)
    except LogMissingError:
        return wanted
    if not (found.extends(wanted) or wanted.extends(found)):
        raise _mismatch(path, found, wanted)
    return found


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
    if wanted is not None and replace(wanted, since=found.since, earlier=found.earlier) != found:
        raise _mismatch(path, found, wanted)
    return found


def _mismatch(path: Path, found: LogDescription, wanted: LogDescription) -> LogMismatchError:
    return LogMismatchError(
        path, f"expected the log's description {found}, got {wanted}; use another directory"
    )
