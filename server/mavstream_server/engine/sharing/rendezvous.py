"""Rendezvous: sources wait for each other at a position, so that their queries can be attached there."""

from __future__ import annotations

from mavstream_server.engine.sharing.running_prefix import PrefixGroup, RunningPrefix
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.engine.sources.source_task import SourceTask


class _Participant:
    """A participant of a rendezvous: a running prefix or a shared pipeline."""

    __slots__ = ("_depth", "_party", "task")

    def __init__(self, party: RunningPrefix | SharedPipeline, depth: int) -> None:
        self._party = party
        self._depth = depth
        if isinstance(party, RunningPrefix):
            self.task = party.task
        else:
            (self.task,) = party.sources.values()

    @property
    def position(self) -> int:
        return self.task.work.cursor.position

    def has_arrived(self, position: int) -> bool:
        """Whether it is at the position with empty queues, or will never get there."""
        if not self.task.attached or self.task.work.ended:
            return True
        if self.position < position:
            return False
        party = self._party
        return party.is_quiescent(self._depth) if isinstance(party, RunningPrefix) else party.is_quiescent


class Rendezvous:
    """Sources that read up to a common position and wait there, so that all have read the same marks, too.

    It ends when all have arrived, at its deadline, or when the engine is idle.
    """

    def __init__(self, group: PrefixGroup, participants: list[_Participant], now: int, timeout: int) -> None:
        self.group = group
        self.begun, self.deadline = now, now + timeout
        # One row beyond the furthest source: marks ahead of it are then read by all, those behind it by none.
        self._position = 1 + max(participant.position for participant in participants)
        self._awaited = list(participants)
        self.tasks: list[SourceTask] = [participant.task for participant in participants]
        for task in self.tasks:
            task.work.until = self._position

    @property
    def complete(self) -> bool:
        """Whether all have arrived. Called at every step, so arrived ones are not checked again."""
        awaited = self._awaited
        while awaited and awaited[-1].has_arrived(self._position):
            awaited.pop()
        return not awaited

    def end(self) -> None:
        """Let all sources read on."""
        for task in self.tasks:
            task.work.until = None


def meeting(group: PrefixGroup, now: int, near: int) -> Rendezvous | None:
    """Begin a rendezvous of a group's prefixes and its pipeline; None unless two are within `near` rows."""
    participants = [_Participant(prefix, group.depth) for prefix in group.free(now)]
    if group.pipeline is None:
        participants = _largest_cluster(participants, near)
    else:
        pipeline = _Participant(group.pipeline, group.depth)
        if pipeline.task.work.ended:
            return None
        participants = [
            pipeline,
            *(other for other in participants if abs(other.position - pipeline.position) <= near),
        ]
    if len(participants) < 2:
        return None
    # No longer than any of them may wait for more rows under load.
    return Rendezvous(
        group, participants, now, min(participant.task.linger.limit for participant in participants)
    )


def _largest_cluster(participants: list[_Participant], near: int) -> list[_Participant]:
    """Return the largest set of participants within `near` rows of each other."""
    ordered = sorted(participants, key=lambda participant: participant.position)
    best: list[_Participant] = []
    start = 0
    for stop, participant in enumerate(ordered, 1):
        while participant.position - ordered[start].position > near:
            start += 1
        if stop - start > len(best):
            best = ordered[start:stop]
    return best
