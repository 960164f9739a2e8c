"""Sample data: a day in twenty smart homes, generated from a fixed seed.

`python -m mavstream_feeder.input.sample DIRECTORY` writes the files in `data/`, byte for byte.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TypeAlias

from mavstream_protocol import FieldType, StreamSpec

Row: TypeAlias = tuple[object, ...]
Maker: TypeAlias = Callable[[Random, float], Row]

DATA = Path(__file__).parents[1] / "data"
ROWS = 1000
HOMES = 20
ROOMS = ("kitchen", "hall", "bedroom", "bathroom", "living", "cellar")
DOORS = ("front", "back", "garage", "cellar")
DEVICES = {"oven": 2800, "washer": 2000, "heater": 1500, "fridge": 150, "tv": 120, "lamp": 40}
_BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
_DAY_SECONDS = 86_400


def _stream(name: str, *fields: tuple[str, FieldType]) -> StreamSpec:
    common = [("at", FieldType.TIMESTAMP), ("home", FieldType.INT)]
    return StreamSpec.model_validate(
        {
            "name": name,
            "fields": [
                *({"name": field, "type": kind} for field, kind in (*common, *fields[:-1])),
                # Readings may be missing, as in datasets of homes, which are fed into the same streams.
                {"name": fields[-1][0], "type": fields[-1][1], "nullable": True},
            ],
            "event_time": "at",
            # A feeder that was killed must not hold back the watermark of the next one.
            "idle_timeout": "2s",
            "retention": {"time": "10m", "bytes": "256MB"},
        }
    )


STREAMS = {
    spec.name: spec
    for spec in (
        _stream("motion", ("room", FieldType.STRING), ("level", FieldType.FLOAT)),
        _stream("doors", ("door", FieldType.STRING), ("open", FieldType.BOOL)),
        _stream("temperature", ("room", FieldType.STRING), ("celsius", FieldType.FLOAT)),
        _stream("humidity", ("room", FieldType.STRING), ("percent", FieldType.INT)),
        _stream("power", ("device", FieldType.STRING), ("watts", FieldType.FLOAT)),
    )
}


def sample_file(stream: str) -> Path:
    """Return the file with the sample rows of a stream."""
    return DATA / f"{stream}.csv"


def write_sample(folder: Path, seed: int = 2026) -> None:
    """Generate a CSV file for each stream."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, spec in STREAMS.items():
        random = Random(f"{name} {seed}")
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(field.name for field in spec.fields)
            writer.writerows(_rows(random, _MAKERS[name]))


def _rows(
    random: Random, make: Callable[[Random, float], tuple[object, ...]]
) -> Iterable[tuple[object, ...]]:
    for second in sorted(random.randrange(_DAY_SECONDS) for _ in range(ROWS)):
        at = (_BEGIN + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
        yield at, random.randint(1, HOMES), *make(random, _warmth(second))


def _warmth(second: float) -> float:
    """Return a number from -1 in the coldest hour of the night to 1 in the warmest of the afternoon."""
    return math.sin((second / _DAY_SECONDS - 0.375) * 2 * math.pi)


def _motion(random: Random, warmth: float) -> Row:
    awake = 0.5 + 0.4 * warmth
    return random.choice(ROOMS), round(random.random() ** (1.5 - awake), 2)


def _door(random: Random, warmth: float) -> Row:
    return random.choice(DOORS), "true" if random.random() < 0.5 else "false"


def _temperature(random: Random, warmth: float) -> Row:
    # One reading in ten is an outlier: a hot stove, or an open window.
    odd = random.random()
    usual = 20 + 3 * warmth + random.gauss(0, 1.5)
    celsius = random.uniform(31, 60) if odd < 0.06 else random.uniform(-5, 4) if odd < 0.1 else usual
    return random.choice(ROOMS), round(celsius, 1)


def _humidity(random: Random, warmth: float) -> Row:
    return random.choice(ROOMS), min(99, max(5, round(random.gauss(50 - 10 * warmth, 17))))


def _power(random: Random, warmth: float) -> Row:
    device = random.choice(list(DEVICES))
    return device, round(DEVICES[device] * random.uniform(0.4, 1.1), 1)


_MAKERS: dict[str, Maker] = {
    "motion": _motion,
    "doors": _door,
    "temperature": _temperature,
    "humidity": _humidity,
    "power": _power,
}


if __name__ == "__main__":
    write_sample(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)
