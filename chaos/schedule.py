"""The schedule of faults: a pure function of the seed."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import NamedTuple

KINDS = ("engine", "api", "both", "failpoints")
"""What a round can do to the server."""
CHANGES = ("pause", "class", "targets")
"""What a round can change about a query."""

_KILLS = ("log.write.before=kill", "log.write.after=kill", "log.write=torn", "log.commit.after=kill")
_RARE = ("log.create.after=kill", "log.rename.before=kill", "log.rename.after=kill", "log.seal.before=kill")
FAILPOINTS = (
    *(f"engine:{each}" for each in _KILLS + _RARE),
    *(f"api:{each}" for each in _KILLS),
    "api:log.write=short",
    "api:catalog.commit.before=kill",
    "api:catalog.commit.after=kill",
)
"""The failpoints that are armed. Rows that are refused for want of space are sent again, answers are not:
errors of the disk fail queries, which is documented, so they have no place here."""
_RARE_HITS, _HITS = 2, 120


class Round(NamedTuple):
    """One round: feed, change a query, then do something to the server."""

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
    """Selects the query that is changed, and to what."""


def make_schedule(seed: int, rounds: int, only: Collection[str] = KINDS, seconds: float = 1.0) -> list[Round]:
    """Return the rounds of a seed: `only` are the faults to choose from, `seconds` the mean time to feed.

    The first rounds do not depend on how many follow.
    """
    random, kinds = Random(seed), [kind for kind in KINDS if kind in only]
    return [_round(random, number, kinds, seconds) for number in range(rounds)]


def _round(random: Random, number: int, kinds: list[str], seconds: float) -> Round:
    feed_s = seconds * random.uniform(0.2, 1.8)
    fault = random.choice(kinds) if kinds else None
    failpoint = None
    if fault == "failpoints":
        point = random.choice(FAILPOINTS)
        most = _RARE_HITS if any(each in point for each in (*_RARE, "catalog")) else _HITS
        failpoint = f"{point}@{random.randint(1, most)}"
    change = random.choice((None, *CHANGES))
    return Round(number, feed_s, fault, failpoint, change, random.randrange(1 << 16))
