"""The manifest of a dataset: its streams and the files that hold their rows.

A folder is a dataset if and only if it has a manifest, which is written last. Jobs of `mavstream data` write
datasets, `mavstream feed` reads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from mavstream_protocol import FieldSpec, StreamSpec
from mavstream_protocol.described import Described
from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.instants import Instant, format_instant
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.names import Name

MANIFEST = "manifest.json"
Kind = Literal["homes", "plain", "converted", "answers"]
"""The kind of job that wrote a dataset."""
_CONFIG = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class InvalidDataset(MavstreamError):
    """A folder that is not a complete dataset, or not the one that its manifest describes."""

    code = "invalid_dataset"


class DataFile(Described):
    """One Parquet file."""

    model_config = _CONFIG

    path: str
    """Relative to the dataset's folder, with forward slashes."""
    rows: int


class StreamData(Described):
    """The rows of one stream."""

    model_config = _CONFIG

    fields: tuple[FieldSpec, ...] = Field(validation_alias="schema", serialization_alias="schema")
    """The columns, as a stream is registered with them."""
    event_time: Name | None
    """The event time column, by which rows are sorted; None for query results."""
    rows: int
    time_range: tuple[Instant, Instant] | None
    """Times of the first and the last row; None if there are no rows or no event time."""
    rate: float | None
    """Rows a second from `begin` to `end` of the dataset."""
    checksum: str
    """The sum of the rows' hashes; depends on neither their order nor their files."""
    files: tuple[DataFile, ...]
    """Files in time order: reading one after the other yields the stream in order."""

    def spec(self, name: str, **options: Any) -> StreamSpec:
        """Return the stream as it is registered; `options` are further fields of StreamSpec."""
        return StreamSpec(name=name, fields=self.fields, event_time=self.event_time, **options)

    def summary(self) -> str:
        """Return rows and time range in one line."""
        if self.time_range is None:
            return f"{self.rows:,} rows"
        first, last = (format_instant(each)[:16] for each in self.time_range)
        return f"{self.rows:,} rows, {first} to {last}"

    def paths(self, folder: Path) -> list[Path]:
        """Return the paths of the files in a local folder."""
        return [folder / file.path for file in self.files]


class BadLines(Described):
    """Lines of raw files that could not be converted."""

    model_config = _CONFIG

    rows: int
    reasons: dict[str, int]
    """The number of lines by kind of reason."""
    files: tuple[DataFile, ...]
    """JSON lines with `file`, `number`, `line` and `reason`."""


class Manifest(Described):
    """A dataset: its streams by name and the options of the job that wrote it."""

    model_config = _CONFIG

    version: Literal[1] = 1
    kind: Kind
    options: dict[str, Any]
    """The options of the job; the same options make the same rows."""
    begin: Instant | None
    """Start of the dataset's time: a row is due its event time minus this after the start of a feed."""
    end: Instant | None
    """End of the dataset's time, exclusive."""
    streams: dict[Name, StreamData]
    truth: StreamData | None = None
    """Ground truth, such as the anomalies of homes; never fed."""
    bad_lines: BadLines | None = None

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the manifest of a local folder; raises InvalidDataset."""
        try:
            text = (folder / MANIFEST).read_text()
        except OSError:
            raise _no_dataset(str(folder)) from None
        return cls.parse(text, str(folder))

    @classmethod
    def parse(cls, text: str | None, folder: str) -> Manifest:
        """Parse the text of a manifest, None if it is missing; raises InvalidDataset."""
        if text is None:
            raise _no_dataset(folder)
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = causes(error.errors())[0]
            reason = sentence(first, quoted(first, "it"))
            raise InvalidDataset(
                f"'{folder}/{MANIFEST}' is not a manifest of version 1: {reason}; "
                "make the dataset again with this version"
            ) from None

    def text(self) -> str:
        """Return the text of the manifest."""
        return self.model_dump_json(by_alias=True, indent=1) + "\n"

    def stream(self, name: str) -> StreamData:
        """Return the entry of a stream, or of `truth`; raises InvalidDataset."""
        data = self.truth if name == "truth" and name not in self.streams else self.streams.get(name)
        if data is None:
            raise InvalidDataset(f"the dataset has no stream '{name}': it has {', '.join(self.streams)}")
        return data


def _no_dataset(folder: str) -> InvalidDataset:
    return InvalidDataset(
        f"'{folder}' has no {MANIFEST}, so it is not a complete dataset: give the folder that a finished "
        "'mavstream data' job wrote, or run the job again if it was stopped"
    )
