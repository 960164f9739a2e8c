"""The demo's queries: workload A of the CQC paper, applied to smart homes.

Nine aggregates, six joins of two streams and six selections. Each of the three classes, with priorities 6, 3
and 1, has three aggregates, two joins and two selections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mavstream import Flow, join, stream


@dataclass(frozen=True, slots=True)
class DemoClass:
    """A class of queries."""

    name: str
    priority: int
    description: str
    queries: dict[str, Flow]


def _aggregate(source: Flow, by: str, window: Any, **compute: str) -> Flow:
    return source.window(window).by(by).agg(**compute)


_MOVING = stream("motion").where("level > 0.5")
_OPENED = stream("doors").where("open")
_CLIMATE = {"home": "l.home", "room": "l.room", "at": "l.at"}
_HOPPING = {"kind": "hopping", "size": "1s", "hop": "250ms"}

ALARMS = DemoClass(
    "alarms",
    6,
    "Wakes people up",
    {
        "hottest": _aggregate(stream("temperature"), "home", "500ms", peak="max(celsius)", n="count(*)"),
        "load": _aggregate(stream("power"), "home", "500ms", watts="sum(watts)", peak="max(watts)"),
        "traffic": _aggregate(_OPENED, "door", "500ms", n="count(*)"),
        "intruder": join(
            _OPENED,
            stream("motion").where("level > 0.8"),
            on="home",
            within="200ms",
            compute={"home": "l.home", "door": "l.door", "room": "r.room", "level": "r.level"},
        ),
        "fire": join(
            stream("temperature").where("celsius > 30"),
            stream("humidity").where("percent < 45"),
            on="home",
            within="300ms",
            compute={**_CLIMATE, "celsius": "l.celsius", "percent": "r.percent"},
        ),
        "overload": stream("power").where("watts > 2500"),
        "frost": stream("temperature").where("celsius < 4"),
    },
)

CONTROL = DemoClass(
    "control",
    3,
    "Switches heating, lights and fans",
    {
        "room_warmth": _aggregate(stream("temperature"), "room", "1s", mean="avg(celsius)"),
        "room_motion": _aggregate(_MOVING, "room", _HOPPING, n="count(*)", most="max(level)"),
        "device_load": _aggregate(stream("power"), "device", "1s", mean="avg(watts)", spread="stddev(watts)"),
        "heat_up": join(
            stream("temperature").where("celsius < 20"),
            _MOVING,
            on=["home", "room"],
            within="500ms",
            compute={**_CLIMATE, "celsius": "l.celsius", "level": "r.level"},
        ),
        "air": join(
            stream("humidity").where("percent > 50"),
            stream("temperature").where("celsius > 20"),
            on=["home", "room"],
            within="500ms",
            compute={**_CLIMATE, "percent": "l.percent", "celsius": "r.celsius"},
        ),
        "lights": stream("motion").where("level > 0.7").project(home="home", room="room"),
        "door_opened": _OPENED.project(home="home", door="upper(door)"),
    },
)

COMFORT = DemoClass(
    "comfort",
    1,
    "Keeps statistics",
    {
        "damp_rooms": _aggregate(stream("humidity"), "room", "1s", mean="avg(percent)", most="max(percent)"),
        "usual_warmth": _aggregate(stream("temperature"), "room", _HOPPING, half="median(celsius)"),
        "homes_awake": _aggregate(stream("motion"), "room", "1s", homes="count(distinct home)"),
        "climate": join(
            stream("temperature"),
            stream("humidity"),
            on=["home", "room"],
            within="200ms",
            compute={**_CLIMATE, "celsius": "l.celsius", "percent": "r.percent"},
        ),
        "cost_of_warmth": join(
            stream("power").where("device = 'heater'"),
            stream("temperature"),
            on="home",
            window={"kind": "tumbling", "size": "500ms"},
            compute={"home": "l.home", "watts": "l.watts", "celsius": "r.celsius"},
        ),
        "mild": stream("temperature").where("celsius BETWEEN 20 AND 24"),
        "damp": stream("humidity").where("percent > 60"),
    },
)

CLASSES = (ALARMS, CONTROL, COMFORT)
