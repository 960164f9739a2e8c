"""Finds the fires of the ground truth among the answers of the alarm `fire`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mavstream_feeder.demo.homes import Fire, Homes
from mavstream_feeder.demo.story import Alarm

QUERY = "fire"


class FireAlarms:
    """The first alarm of each fire. An answer is for a fire if its reading was recorded during it, there."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self._open = list(homes.fires)
        self.found: list[Alarm] = []

    def take(self, answers: pa.RecordBatch, received_us: int) -> None:
        """Take answers of the query, and when they were received, in microseconds since 1970."""
        for fire in [*self._open]:
            alarm = self._alarm(fire, answers, received_us)
            if alarm is not None:
                self._open.remove(fire)
                self.found.append(alarm)

    def _alarm(self, fire: Fire, answers: pa.RecordBatch, received_us: int) -> Alarm | None:
        there = pc.and_(pc.equal(answers["home"], fire.home), pc.equal(answers["room"], fire.room))
        rows = answers.filter(there)
        for at, celsius in zip(
            rows["at"].cast(pa.int64()).to_pylist(), rows["celsius"].to_pylist(), strict=True
        ):
            recorded = self._homes.recorded(fire, celsius)
            if recorded is not None:
                return Alarm(fire, celsius, recorded, (received_us - at) / 1e3)
        return None
