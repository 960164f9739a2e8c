"""The homes of the demo: a recorded dataset, fed as if it were happening now, a day in a minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from mavstream_feeder.errors import UnreadableFile
from mavstream_feeder.input.feed_files import read_dataset
from mavstream_feeder.input.sample import DATA, STREAMS
from mavstream_feeder.input.sources import FileSource
from mavstream_feeder.pacing.rates import Recorded
from mavstream_feeder.sending.feeder import Feeder
from mavstream_protocol.manifest import Manifest

HOMES = DATA / "homes"
"""The dataset that ships with the package, made by `mavstream data generate`."""
SPEED = 1440.0
"""Recorded seconds that pass in one second: a day in a minute."""
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Fire:
    """A fire in the ground truth. Times are recorded ones, in microseconds since 1970."""

    home: int
    room: str
    began: int
    until: int


class Homes:
    """A dataset of homes: its rows for a feeder, and the fires that alarms should find."""

    def __init__(self, folder: Path = HOMES) -> None:
        manifest = Manifest.load(folder)
        missing = [name for name in STREAMS if name not in manifest.streams]
        if missing or manifest.begin is None or manifest.end is None:
            raise UnreadableFile(
                f"'{folder}' is not a dataset of homes, it has no {', '.join(missing) or 'time'}: "
                "make one with 'mavstream data generate'"
            )
        self._begin, self._end = manifest.begin, manifest.end
        self._feeds = read_dataset(folder, [*STREAMS])
        readings = _rows(manifest.stream("temperature").paths(folder))
        self._readings = readings.set_column(0, "at", readings["at"].cast(pa.int64()))
        self.count = len(pc.unique(readings["home"]))
        """Number of homes."""
        self.fires = [] if manifest.truth is None else _fires(manifest.truth.paths(folder))
        """The fires, in the order of time."""

    def clock(self, origin: int, seconds: float) -> str:
        """Return the recorded time of day, `seconds` after a feed began at the recorded time `origin`."""
        now = origin / _MICROSECONDS + seconds * SPEED
        return datetime.fromtimestamp(now, UTC).strftime("%H:%M")

    def origin(self, seconds: float) -> int:
        """Return the recorded time at which a feed begins whose first fire breaks out after `seconds`."""
        if not self.fires:
            return self._begin
        before = self.fires[0].began - round(seconds * SPEED * _MICROSECONDS)
        return self._begin + (before - self._begin) % (self._end - self._begin)

    def feed(self, feeder: Feeder, origin: int) -> None:
        """Add all streams, from a recorded time on; the end of the recording is followed by its beginning."""
        rate = Recorded(origin=origin / _MICROSECONDS, speed=SPEED)
        for name, source in self.sources(origin, rate).items():
            feeder.add(name, source, rate)

    def sources(self, origin: int, rate: Recorded) -> dict[str, FileSource]:
        """Return the rows of each stream, from a recorded time on, with their due times as event times."""
        return {
            name: FileSource(
                feed.paths,
                STREAMS[name],
                loop=True,
                stamp=True,
                skip=pc.sum(pc.less(_rows(feed.paths)["at"].cast(pa.int64()), origin)).as_py() or 0,
                recorded=rate,
                period=(self._end - self._begin) / _MICROSECONDS,
            )
            for name, feed in self._feeds.items()
        }

    def recorded(self, fire: Fire, celsius: float) -> int | None:
        """Return when a temperature was first recorded during a fire, in its room; None if it was not."""
        rows = self._readings
        during = pc.and_(pc.greater_equal(rows["at"], fire.began), pc.less_equal(rows["at"], fire.until))
        there = pc.and_(pc.equal(rows["home"], fire.home), pc.equal(rows["room"], fire.room))
        found = rows.filter(pc.and_(pc.and_(during, there), pc.equal(rows["celsius"], celsius)))
        return found["at"][0].as_py() if found.num_rows else None


def _rows(paths: Sequence[Path]) -> pa.Table:
    # Not as a dataset of pyarrow, which would make a column of the folders' names.
    return pa.concat_tables(pyarrow.parquet.ParquetFile(path).read() for path in paths)


def _fires(paths: list[Path]) -> list[Fire]:
    rows = _rows(paths)
    rows = rows.filter(pc.equal(rows["kind"], "fire"))
    began, until = (rows[name].cast(pa.int64()).to_pylist() for name in ("at", "until"))
    homes, rooms = rows["home"].to_pylist(), rows["room"].to_pylist()
    return [Fire(*each) for each in zip(homes, rooms, began, until, strict=True)]
