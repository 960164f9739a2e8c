"""Occupancy: what classes use of the engine, what each could use, and how long their rows wait.

Busy time alone says little: while there is time, every few rows get a turn of their own, and under load turns
are spent on more rows each. So what turns cost whatever they find is told apart from the work on rows. The
first gives way, and then a round over all queries is the longest that a row waits; the second does not.
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
"""Policies under which classes share the time by priority."""
ROUND_S = 0.01
"""How long a round of all classes is: the period of `cqc` where nothing else is set."""
TURN_S = 3 * CALL_NS / 1e9
"""What a turn costs whatever it finds: calls of a source, an operator and an output."""
_NO_ANSWERS = Latency()
_LEAST_WORK = 0.1
"""The share of busy time that is taken as work on rows at least."""


@dataclass(frozen=True, slots=True)
class ClassLoad:
    """What a class does."""

    priority: int
    queries: int = 0
    busy: float = 0.0
    """The share of the engine's time that it gets."""
    turns: float = 0.0
    """Per second."""
    latency: Latency = _NO_ANSWERS
    """Of its answers over the last seconds."""

    @property
    def work(self) -> float:
        """The share of the time that goes into rows, and cannot be saved by longer turns."""
        return max(self.busy - self.turns * TURN_S, _LEAST_WORK * self.busy)

    def later(self, busy: float, turns: float) -> ClassLoad:
        """Return the class when it does so much more."""
        return replace(self, busy=self.busy + busy, turns=self.turns + turns)

    def plus(self, demand: Demand) -> ClassLoad:
        """Return the class with one more query."""
        return replace(self.later(demand.work, demand.turns), queries=self.queries + 1)


class Response(NamedTuple):
    """What a class can expect."""

    room: float
    """The share of the time that it could use beside the work of the others."""
    mean: float
    """Seconds from a row's arrival to the end of the turn that takes it; inf if the class falls behind."""

    @property
    def lasting(self) -> bool:
        """Whether it keeps up."""
        return self.mean < inf


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The engine, divided among classes."""

    classes: Mapping[str, ClassLoad]
    by_priority: bool
    """Whether classes share the time by priority; else all queries stand in one line."""

    @property
    def busy(self) -> float:
        """The share of its time that the engine is busy."""
        return sum(one.busy for one in self.classes.values())

    def work_of(self, name: str) -> float:
        """Return the work on rows that a class has to share its room with: its own, or all in one line."""
        if self.by_priority:
            return self.classes[name].work if name in self.classes else 0.0
        return sum(one.work for one in self.classes.values())

    def plus(self, name: str, priority: int, demand: Demand) -> Occupancy:
        """Return the engine with one more query in a class."""
        known = self.classes.get(name) or ClassLoad(priority)
        return Occupancy({**self.classes, name: known.plus(demand)}, self.by_priority)

    def response(self, name: str) -> Response:
        """Return what a class can expect.

        Its rows wait until other classes end the turns that they are at. Behind rows of its own class they
        wait for the share of the time that the others leave it (Cobham's formula), but not longer than a
        round in which each query of the class gets a turn.
        """
        if not self.by_priority:
            return self._in_one_line()
        own = self.classes[name]
        room = self._room(name, {other: one.work for other, one in self.classes.items()})
        behind = min(
            wait_behind(_residual([own]), 1 - self._room(name, self._busy()), own.busy),
            cycle(own.queries * TURN_S, room, own.work),
        )
        others = sum(self._begun(other) for other in self.classes if other != name)
        return Response(room, others + behind + _turn(own.busy, own.turns))

    def _room(self, name: str, demands: Mapping[str, float]) -> float:
        weights = {other: float(one.priority) for other, one in self.classes.items()}
        return capacity(name, weights, demands)

    def _busy(self) -> dict[str, float]:
        return {name: one.busy for name, one in self.classes.items()}

    def _begun(self, name: str) -> float:
        """Return what is left, on average, of the time that a class keeps the engine once it has it.

        That is until nothing of it waits, or until its share of a round is used up.
        """
        load, room = self.classes[name], self._room(name, self._busy())
        turn, all_ = _turn(load.busy, load.turns), sum(one.priority for one in self.classes.values())
        longest = max(ROUND_S * load.priority / all_, turn)
        lasts = min(turn / (1 - load.busy / room), longest) if load.busy < room else longest
        return min(load.busy, room) * lasts

    def _in_one_line(self) -> Response:
        queries = sum(one.queries for one in self.classes.values())
        turns = sum(one.turns for one in self.classes.values())
        work = sum(one.work for one in self.classes.values())
        wait = min(
            wait_behind(_residual(self.classes.values()), 0.0, self.busy), cycle(queries * TURN_S, 1.0, work)
        )
        return Response(1.0, wait + _turn(self.busy, turns))


def _residual(loads: Iterable[ClassLoad]) -> float:
    turns = ((one.turns, _turn(one.busy, one.turns)) for one in loads)
    # Turns vary with the rows that they find, about as exponential times do.
    return residual(Stream(rate, turn, 2 * turn * turn) for rate, turn in turns)


def _turn(busy: float, turns: float) -> float:
    return busy / turns if turns else TURN_S
