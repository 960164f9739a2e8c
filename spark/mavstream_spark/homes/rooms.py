"""Rooms, doors and devices of homes, and the streams of their sensors."""

from __future__ import annotations

from types import MappingProxyType

from mavstream_protocol import FieldSpec, FieldType, StreamSpec

ROOMS = ("kitchen", "hall", "bedroom", "bathroom", "living", "cellar")
KITCHEN, HALL, BEDROOM, BATHROOM, LIVING, CELLAR = range(len(ROOMS))
AWAY = -1
"""Instead of a room: out of the house."""
DOORS = ("front", "back", "garage", "cellar")
FRONT, BACK, GARAGE, CELLAR_DOOR = range(len(DOORS))
DEVICES = ("oven", "washer", "heater", "fridge", "tv", "lamp")
DAY = 86_400
"""Seconds in a day."""
MICROSECONDS = 1_000_000


def _stream(name: str, *fields: tuple[str, FieldType, bool]) -> StreamSpec:
    common = [("at", FieldType.TIMESTAMP, False), ("home", FieldType.INT, False)]
    return StreamSpec(
        name=name,
        fields=tuple(FieldSpec(name=n, type=t, nullable=null) for n, t, null in (*common, *fields)),
        event_time="at",
    )


STREAMS = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            _stream("motion", ("room", FieldType.STRING, False), ("level", FieldType.FLOAT, True)),
            _stream("doors", ("door", FieldType.STRING, False), ("open", FieldType.BOOL, True)),
            _stream("light", ("room", FieldType.STRING, False), ("lux", FieldType.FLOAT, True)),
            _stream("temperature", ("room", FieldType.STRING, False), ("celsius", FieldType.FLOAT, True)),
            _stream("humidity", ("room", FieldType.STRING, False), ("percent", FieldType.INT, True)),
            _stream("power", ("device", FieldType.STRING, False), ("watts", FieldType.FLOAT, True)),
        )
    }
)
"""The streams of the sensors, with the names and columns that the demo's queries use."""

TRUTH = _stream(
    "truth",
    ("kind", FieldType.STRING, False),
    ("room", FieldType.STRING, False),
    ("until", FieldType.TIMESTAMP, False),
)
"""The anomalies, from `at` until `until`."""

ROWS_A_DAY = MappingProxyType(
    {"motion": 2900, "doors": 30, "light": 1740, "temperature": 1740, "humidity": 1740, "power": 4340}
)
"""About how many rows a home-day has; used to choose the number of slices, never for rows."""
