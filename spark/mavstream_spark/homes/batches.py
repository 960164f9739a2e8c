"""The rows of home-days as Arrow batches, which tasks can make in any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mavstream_spark.homes.faults import sent
from mavstream_spark.homes.rooms import DAY, DEVICES, DOORS, MICROSECONDS, ROOMS
from mavstream_spark.homes.sensors import SENSORS, HomeDay

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
    """The homes and days to make; a home-day is one home on one day. Days count from 1970."""

    seed: int
    homes: int
    first_day: int
    days: int
    anomalies: float

    def home_day(self, number: int) -> HomeDay:
        """Return a home-day by its number from 0; homes count from 1."""
        home, day = number % self.homes + 1, self.first_day + number // self.homes
        return HomeDay.of(self.seed, home, day, self.anomalies)

    def batches(self, number: int) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of a home-day for each stream, and for `truth`."""
        today = self.home_day(number)
        for stream in SENSORS:
            yield stream, sensor_batch(today, stream)
        yield "truth", truth_batch(today)


def sensor_batch(today: HomeDay, stream: str) -> pa.RecordBatch:
    """Return the rows of a sensor stream on a home-day."""
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


def truth_batch(today: HomeDay) -> pa.RecordBatch:
    """Return the anomaly of a home-day: one row, or none."""
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
    # Sensors report milliseconds.
    millis = np.rint(seconds * 1000).astype(np.int64)
    return pa.array(day * DAY * MICROSECONDS + millis * 1000, pa.int64()).view(_INSTANT)


def _texts(codes: np.ndarray[tuple[int], np.dtype[np.int64]], names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(names)).cast(pa.string())
