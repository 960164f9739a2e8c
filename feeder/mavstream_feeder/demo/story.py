"""The story of the demo: four acts, and what was measured in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mavstream_feeder.demo.homes import Fire
from mavstream_feeder.demo.latencies import Latencies

SECONDS = 60.0
"""How long the story takes, if there is time for it."""
LEAST_SECONDS = 20.0
"""Below that the homes are only fed: acts would be too short to measure anything."""
FIRE_AT = 0.85
"""When the fire breaks out, as a share of the story: in its last act."""
BASELINE = "rr"
"""The policy that the server's own is compared with: each operator in turn, whatever its class."""


@dataclass(frozen=True, slots=True)
class Act:
    """A part of the story."""

    name: str
    until: float
    """Its end, as a share of the story."""
    policy: str | None
    """The policy to set; None for that of the server."""
    loaded: bool
    title: str


ACTS = (
    Act("calm", 0.25, None, False, "Calm. All queries keep up."),
    Act(
        "overload_baseline",
        0.5,
        BASELINE,
        True,
        "Overload. The class comfort gets 12 heavy queries and 40,000 rows/s of meters, more "
        "than can be processed. The policy is {policy}: each operator in turn, whatever its class.",
    ),
    Act("overload", 0.75, None, True, "The same load under {policy}, the policy of the server."),
    Act("fire", 1.0, None, False, "Calm again, until a fire breaks out."),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What an act showed."""

    act: Act
    policy: str
    seconds: float
    classes: dict[str, Latencies]

    def as_json(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "act": self.act.name,
            "policy": self.policy,
            "loaded": self.act.loaded,
            "seconds": round(self.seconds, 1),
            "classes": {name: each.as_json() for name, each in self.classes.items()},
        }


@dataclass(frozen=True, slots=True)
class Alarm:
    """A fire that was found: the first answer of the alarm `fire` for its home and room."""

    fire: Fire
    celsius: float
    recorded: int
    """When the temperature was recorded that raised the alarm, in microseconds since 1970."""
    delay_ms: float
    """From the due time of this reading to the receipt of the alarm."""

    @property
    def after_s(self) -> float:
        """Recorded seconds from the outbreak to the reading: how long it took to get hot."""
        return (self.recorded - self.fire.began) / 1e6

    def as_json(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "home": self.fire.home,
            "room": self.fire.room,
            "celsius": self.celsius,
            "after_s": round(self.after_s, 3),
            "delay_ms": round(self.delay_ms, 3),
        }


@dataclass(frozen=True, slots=True)
class Told:
    """The story as it went."""

    acts: Sequence[Measured]
    alarms: Sequence[Alarm]
    fires: Sequence[Fire]
    """All fires of the dataset; the first one breaks out during the story."""

    def unfound(self) -> list[str]:
        """Return the failed check if the fire of the story was not found."""
        if not self.fires or any(each.fire == self.fires[0] for each in self.alarms):
            return []
        return [f"the fire in home {self.fires[0].home}, {self.fires[0].room}, raised no alarm"]

    def as_json(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "acts": [each.as_json() for each in self.acts],
            "alarms": [each.as_json() for each in self.alarms],
        }


def measured(
    act: Act, policy: str, seconds: float, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Measured:
    """Return what an act showed, from the statistics of classes at its beginning and at its end."""
    classes = {name: Latencies.between(before[name], after[name]) for name in before}
    return Measured(act, policy, seconds, classes)
