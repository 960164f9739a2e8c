"""Meetings: sources wait for each other ahead of a row, so that queries can be brought together there."""

from __future__ import annotations

from mavstream_server.engine.sharing.running_prefix import PrefixGroup, RunningPrefix
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.engine.source_task import SourceTask


class _Guest:
    """Someone who is to come: a strand or a trunk."""

    __slots__ = ("_depth", "_one", "task")

    def __init__(self, one: RunningPrefix | SharedPipeline, depth: int) -> None:
        self._one = one
        self._depth = depth
        if isinstance(one, RunningPrefix):
            self.task = one.task
        else:
            (self.task,) = one.sources.values()

    @property
    def position(self) -> int:
        return self.task.work.cursor.position

    def has_come(self, position: int) -> bool:
        """Whether it stands there with nothing on its way, or will not come any more."""
        if not self.task.attached or self.task.work.ended:
            return True
        if self.position < position:
            return False
        return self._one.is_still(self._depth) if isinstance(self._one, RunningPrefix) else self._one.is_still


class Rendezvous:
    """Each of the sources reads on to a row and no further, so that all have read the same marks, too.

    Nobody waits behind the deadline, nor while there is nothing else to do.
    """

    def __init__(self, group: PrefixGroup, guests: list[_Guest], now: int, patience: int) -> None:
        self.group = group
        self.begun, self.deadline = now, now + patience
        # One row further than anybody has come: marks ahead of it are then read by all, those behind by none.
        self._position = 1 + max(guest.position for guest in guests)
        self._awaited = list(guests)
        self.tasks: list[SourceTask] = [guest.task for guest in guests]
        for task in self.tasks:
            task.work.until = self._position

    @property
    def complete(self) -> bool:
        """Whether all have come. Asked at every step, so nobody who has is looked at again."""
        awaited = self._awaited
        while awaited and awaited[-1].has_come(self._position):
            awaited.pop()
        return not awaited

    def end(self) -> None:
        """Let all read on."""
        for task in self.tasks:
            task.work.until = None


def meeting(group: PrefixGroup, now: int, near: int) -> Rendezvous | None:
    """Let strands of a group, and its trunk, wait for each other if two of them stand near, in rows."""
    guests = [_Guest(strand, group.depth) for strand in group.free(now)]
    if group.trunk is None:
        guests = _largest_crowd(guests, near)
    else:
        trunk = _Guest(group.trunk, group.depth)
        if trunk.task.work.ended:
            return None
        guests = [trunk, *(guest for guest in guests if abs(guest.position - trunk.position) <= near)]
    if len(guests) < 2:
        return None
    # As long as each of them waits for more rows under load, at most.
    return Rendezvous(group, guests, now, min(guest.task.cap for guest in guests))


def _largest_crowd(guests: list[_Guest], near: int) -> list[_Guest]:
    """Return the most that stand near each other."""
    ordered = sorted(guests, key=lambda guest: guest.position)
    best: list[_Guest] = []
    start = 0
    for stop, guest in enumerate(ordered, 1):
        while guest.position - ordered[start].position > near:
            start += 1
        if stop - start > len(best):
            best = ordered[start:stop]
    return best
