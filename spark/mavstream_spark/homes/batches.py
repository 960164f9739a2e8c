"""Batches: the rows of homes and days as Arrow, made by any task in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from mavstream_spark.homes.faults import sent
from mavstream_spark.homes.rooms import DAY, DEVICES, DOORS, MICROSECONDS, ROOMS
from mavstream_spark.homes.sensors import SENSORS, HomeDay

# Rows that go to Spark together: smaller batches cost more on the way, larger ones more memory.
_BATCH_ROWS = 20_000
_PLACES = {"doors": DOORS, "power": DEVICES}
_PLACE_COLUMNS = {"doors": "door", "power": "device"}
_VALUE_COLUMNS = {
    "motion": "level",
    "doors": "open",
    "light": "lux",
    "temperature": "celsius",
    "humidity": "percent",
    "power": "watts",
}
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class HomesPlan:
    """Which homes and days are made; days count from 1970."""

    seed: int
    homes: int
    first_day: int
    days: int
    anomalies: float

    def pair(self, number: int) -> tuple[int, int]:
        """Return home and day of a pair by its number; homes count from 1."""
        return number % self.homes + 1, self.first_day + number // self.homes

    def home_day(self, number: int) -> HomeDay:
        """Work out a pair."""
        home, day = self.pair(number)
        return _home_day(self.seed, home, day, self.anomalies)

    def batches(self, number: int) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Give the rows of a pair for each stream, and for `truth`."""
        today = self.home_day(number)
        for stream in SENSORS:
            yield stream, sensor_batch(today, stream)
        yield "truth", truth_batch(today, "truth")


# Every stream asks for it, and mostly in a process that has worked it out for another stream.
_home_day = lru_cache(maxsize=1000)(HomeDay.of)


def batch_maker(
    plan: HomesPlan, stream: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what turns batches of pair numbers into batches of rows, for Spark's tasks."""
    make = truth_batch if stream == "truth" else sensor_batch

    def batches(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        for part in numbers:
            for number in part.column(0).to_pylist():
                waiting.append(make(plan.home_day(number), stream))
                if sum(batch.num_rows for batch in waiting) >= _BATCH_ROWS:
                    yield pa.concat_batches(waiting)
                    waiting = []
        if waiting:
            yield pa.concat_batches(waiting)

    return batches


def sensor_batch(today: HomeDay, stream: str) -> pa.RecordBatch:
    """Return the rows of a sensor stream of one home and day."""
    rows = sent(SENSORS[stream](today), stream, today)
    readings = rows.readings
    names = _PLACES.get(stream, ROOMS)
    columns = {
        "at": _instants(today.day, readings.times),
        "home": pa.array(np.full(len(readings.times), today.home.number)),
        _PLACE_COLUMNS.get(stream, "room"): _texts(readings.places, names),
        _VALUE_COLUMNS[stream]: pa.array(readings.values, mask=rows.missing),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def truth_batch(today: HomeDay, stream: str) -> pa.RecordBatch:
    """Return what went wrong in one home on one day: one row, or none."""
    found = [] if today.anomaly is None else [today.anomaly]
    columns = {
        "at": _instants(today.day, np.array([each.begin for each in found])),
        "home": pa.array([today.home.number] * len(found), pa.int64()),
        "kind": pa.array([each.kind for each in found], pa.string()),
        "room": pa.array([ROOMS[each.room] for each in found], pa.string()),
        "until": _instants(today.day, np.array([each.end for each in found])),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _instants(day: int, seconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pa.Array:
    # Sensors tell milliseconds.
    millis = np.rint(seconds * 1000).astype(np.int64)
    return pa.array(day * DAY * MICROSECONDS + millis * 1000, pa.int64()).view(_INSTANT)


def _texts(codes: np.ndarray[tuple[int], np.dtype[np.int64]], names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(names)).cast(pa.string())
