"""Files to feed: given one by one, or listed in the manifest of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mavstream_feeder.errors import UnreadableFile
from mavstream_feeder.input.files import row_count
from mavstream_feeder.input.splitting import Branch
from mavstream_feeder.pacing.rates import FLAT_OUT, AnyRate
from mavstream_protocol import StreamSpec
from mavstream_protocol.manifest import Manifest, StreamData

_MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class FeedFile:
    """Files that are read one after the other, for one stream or, with branches, for several."""

    name: str
    """The name of the stream; of a split file, the name by which its rate is given."""
    paths: tuple[Path, ...]
    spec: StreamSpec | None = None
    """Specification to create the stream with; None to infer it from the file."""
    rate: AnyRate = FLAT_OUT
    branches: tuple[Branch, ...] = ()
    origin: float | None = None
    """When recorded time begins, in seconds since 1970; None to take it from the file."""
    period: float | None = None
    """Length of a pass over the files, in recorded seconds; None to take it from the file."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that get its rows."""
        return tuple(branch.stream for branch in self.branches) or (self.name,)


def read_dataset(folder: Path, streams: Sequence[str] = ()) -> dict[str, FeedFile]:
    """Return the streams of a dataset, or some of them, by name. Raises InvalidDataset, UnreadableFile."""
    manifest = Manifest.load(folder)
    if manifest.kind == "answers":
        raise UnreadableFile(
            f"'{folder}' contains expected results, which have no time: give a dataset of streams"
        )
    begin = None if manifest.begin is None else manifest.begin / _MICROSECONDS
    period = None
    if manifest.begin is not None and manifest.end is not None:
        period = (manifest.end - manifest.begin) / _MICROSECONDS
    chosen = {name: manifest.stream(name) for name in streams or manifest.streams}
    return {
        name: FeedFile(name, _checked(folder, name, data), data.spec(name), origin=begin, period=period)
        for name, data in chosen.items()
    }


def _checked(folder: Path, name: str, data: StreamData) -> tuple[Path, ...]:
    """Return a stream's files; raises UnreadableFile if they have other rows than the manifest says."""
    paths = tuple(data.paths(folder))
    for path, file in zip(paths, data.files, strict=True):
        rows = row_count(path)
        if rows != file.rows:
            raise UnreadableFile(
                f"stream '{name}': file '{path}' has {rows} rows, expected {file.rows} as the manifest says: "
                "generate the dataset again"
            )
    return paths
