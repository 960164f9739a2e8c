"""The schedule of faults: a pure function of the seed."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import NamedTuple

from chaos.failpoints import Armed, failpoints

KINDS = ("engine", "api", "both", "stop", "damage", "failpoints")
"""What a round can do to the server."""
CHANGES = ("pause", "class", "targets", "table", "start")
"""What a round can change."""

_BLOCK = 8
"""Rounds after which it is decided again whether the API process lives for a while.

The optimizer, which is a part of it, needs some seconds to find another plan for a query.
"""


class Round(NamedTuple):
    """One round: change something, feed, then do something to the server."""

    number: int
    feed_s: float
    """How long rows are fed before the fault."""
    fault: str | None
    """One of KINDS; None for a round without a fault."""
    failpoint: str | None
    """The failpoint that is armed, if the fault is one."""
    change: str | None
    """One of CHANGES; None for no change."""
    pick: int
    """Selects the query that is changed or whose checkpoint is damaged, and how."""


class Variant(NamedTuple):
    """What differs between the servers of two seeds."""

    small_results: bool
    """Whether result logs are small: they then lose old answers to retention, and start segments often."""
    sync: bool
    """Whether the server syncs to disk what it acknowledges."""


def variant(seed: int) -> Variant:
    """Return the variant of a seed."""
    return Variant(seed % 2 == 0, seed % 3 == 0)


def make_schedule(seed: int, rounds: int, only: Collection[str] = KINDS, seconds: float = 1.0) -> list[Round]:
    """Return the rounds of a seed: `only` are the faults to choose from, `seconds` the mean time to feed.

    The first rounds do not depend on how many follow.
    """
    random, kinds = Random(seed), [kind for kind in KINDS if kind in only]
    armed = failpoints(*variant(seed))
    found: list[Round] = []
    chosen = kinds
    for number in range(rounds):
        if number % _BLOCK == 0:
            chosen = ["engine"] if "engine" in kinds and random.random() < 0.5 else kinds
        found.append(_round(random, number, chosen, armed, seconds))
    return found


def _round(random: Random, number: int, kinds: list[str], armed: list[Armed], seconds: float) -> Round:
    feed_s = seconds * random.uniform(0.2, 1.8)
    fault = random.choice(kinds) if kinds else None
    change = random.choice((None, *CHANGES))
    failpoint = None
    if fault == "failpoints":
        point = random.choice(armed)
        failpoint, change = f"{point.entry}@{random.randint(1, point.most)}", point.change or change
    return Round(number, feed_s, fault, failpoint, change, random.randrange(1 << 16))
