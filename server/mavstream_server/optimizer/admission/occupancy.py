"""Occupancy model: how classes share the engine's time, and how long their rows wait.

Busy time alone says little: an idle engine gives every few rows a turn of their own, a loaded one processes
more rows per turn. The model therefore separates the fixed cost of turns from the work on rows. The fixed
cost shrinks under load, until a row waits for at most one round over all queries; the work does not shrink.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from mavstream_server.core.metrics import Latency
from mavstream_server.optimizer.admission.cost_history import CALL_NS, Demand
from mavstream_server.optimizer.admission.queueing import Stream, capacity, cycle, residual, wait_behind

BY_PRIORITY = frozenset({"abd", "cqc", "mbd"})
"""Policies under which classes share the engine's time by priority."""
ROUND_S = 0.01
"""Length of a round over all classes, in seconds: the default period of `cqc`."""
TURN_S = 3 * CALL_NS / 1e9
"""Fixed cost of a turn, in seconds: one call each of a source, an operator and an output."""
_NO_ANSWERS = Latency()
_MIN_WORK_SHARE = 0.1
"""Minimum share of busy time that is attributed to work on rows."""


@dataclass(frozen=True, slots=True)
class ClassLoad:
    """Measured load of one class."""

    priority: int
    queries: int = 0
    busy: float = 0.0
    """Share of the engine's time that the class uses."""
    turns: float = 0.0
    """Turns per second."""
    latency: Latency = _NO_ANSWERS
    """Latency of the class's answers over the last seconds."""

    @property
    def work(self) -> float:
        """Share of the engine's time spent on rows, which longer turns cannot reduce."""
        return max(self.busy - self.turns * TURN_S, _MIN_WORK_SHARE * self.busy)

    def later(self, busy: float, turns: float) -> ClassLoad:
        """Return the class with additional busy time and turns."""
        return replace(self, busy=self.busy + busy, turns=self.turns + turns)

    def plus(self, demand: Demand) -> ClassLoad:
        """Return the class with one more query."""
        return replace(self.later(demand.work, demand.turns), queries=self.queries + 1)


class Response(NamedTuple):
    """Expected response of a class."""

    room: float
    """Share of the engine's time available to the class beside the work of the others."""
    mean: float
    """Mean seconds from a row's arrival to the end of its turn; inf if the class falls behind."""

    @property
    def stable(self) -> bool:
        """Whether the class keeps up with its arrivals."""
        return self.mean < inf


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The engine's time as divided among classes."""

    classes: Mapping[str, ClassLoad]
    by_priority: bool
    """Whether classes share the time by priority; otherwise all queries wait in one common queue."""

    @property
    def busy(self) -> float:
        """Share of the time that the engine is busy."""
        return sum(one.busy for one in self.classes.values())

    def work_of(self, name: str) -> float:
        """Return the work that competes for a class's time: its own, or all if there is one queue."""
        if self.by_priority:
            return self.classes[name].work if name in self.classes else 0.0
        return sum(one.work for one in self.classes.values())

    def plus(self, name: str, priority: int, demand: Demand) -> Occupancy:
        """Return the occupancy with one more query in a class."""
        known = self.classes.get(name) or ClassLoad(priority)
        return Occupancy({**self.classes, name: known.plus(demand)}, self.by_priority)

    def response(self, name: str) -> Response:
        """Return the expected response of a class.

        Its rows wait until the turns that other classes have begun are over. Behind rows of their own class
        they wait according to the time that the others leave to the class (Cobham's formula), but no longer
        than a round in which each query of the class gets a turn.
        """
        if not self.by_priority:
            return self._common_queue_response()
        own = self.classes[name]
        room = self._room(name, {other: one.work for other, one in self.classes.items()})
        behind = min(
            wait_behind(_residual([own]), 1 - self._room(name, self._busy()), own.busy),
            cycle(own.queries * TURN_S, room, own.work),
        )
        others = sum(self._residual_time(other) for other in self.classes if other != name)
        return Response(room, others + behind + _turn(own.busy, own.turns))

    def _room(self, name: str, demands: Mapping[str, float]) -> float:
        weights = {other: float(one.priority) for other, one in self.classes.items()}
        return capacity(name, weights, demands)

    def _busy(self) -> dict[str, float]:
        return {name: one.busy for name, one in self.classes.items()}

    def _residual_time(self, name: str) -> float:
        """Return the mean remaining time, in seconds, that a class occupies the engine.

        A class occupies the engine until it has no waiting rows or has used up its share of a round.
        """
        load, room = self.classes[name], self._room(name, self._busy())
        turn, all_ = _turn(load.busy, load.turns), sum(one.priority for one in self.classes.values())
        longest = max(ROUND_S * load.priority / all_, turn)
        lasts = min(turn / (1 - load.busy / room), longest) if load.busy < room else longest
        return min(load.busy, room) * lasts

    def _common_queue_response(self) -> Response:
        queries = sum(one.queries for one in self.classes.values())
        turns = sum(one.turns for one in self.classes.values())
        work = sum(one.work for one in self.classes.values())
        wait = min(
            wait_behind(_residual(self.classes.values()), 0.0, self.busy), cycle(queries * TURN_S, 1.0, work)
        )
        return Response(1.0, wait + _turn(self.busy, turns))


def _residual(loads: Iterable[ClassLoad]) -> float:
    turns = ((one.turns, _turn(one.busy, one.turns)) for one in loads)
    # The time of a turn varies with its number of rows, roughly exponentially.
    return residual(Stream(rate, turn, 2 * turn * turn) for rate, turn in turns)


def _turn(busy: float, turns: float) -> float:
    return busy / turns if turns else TURN_S
