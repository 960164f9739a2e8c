"""Lines of sources that have something to read: who is next, for cores that serve nothing else."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

from mavstream_server.scheduling.mechanisms.broadcast_disk import BroadcastDisk, SlotHolder
from mavstream_server.simulation.model.sources import SourceOperator
from mavstream_server.simulation.scenario import Scenario, SourceOrder


class RoundRobinOrder:
    """Sources, by their places, take turns."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        """Those that have something to read, in order."""
        self._last = -1

    def add(self, index: int) -> None:
        """Let a source stand in line."""
        insort(self.waiting, index)

    def take(self) -> int:
        """Return the next in line, who leaves it."""
        at = bisect_right(self.waiting, self._last)
        self._last = self.waiting.pop(at if at < len(self.waiting) else 0)
        return self._last


class BroadcastDiskOrder:
    """Sources have slots by their priorities, as operators of the variant of MBD (dissertation, 6.3.6)."""

    def __init__(self, priorities: Sequence[int]) -> None:
        self._disk: BroadcastDisk[int] = BroadcastDisk()
        self._holders = [SlotHolder(index, priority, index) for index, priority in enumerate(priorities)]
        self.waiting = 0
        """How many have something to read."""

    def add(self, index: int) -> None:
        """Let a source have its slots."""
        self.waiting += 1
        self._disk.wake(self._holders[index])

    def take(self) -> int:
        """Return who has the next slot, and passes over the others until it joins again."""
        self.waiting -= 1
        taken = self._disk.take()
        assert taken is not None
        return taken.item


def source_order(
    scenario: Scenario, sources: Sequence[SourceOperator]
) -> RoundRobinOrder | BroadcastDiskOrder:
    """Return an empty line of sources in the order that a scenario wants."""
    if scenario.sources.order is SourceOrder.ROUND_ROBIN:
        return RoundRobinOrder()
    return BroadcastDiskOrder(
        [
            max((scenario.priorities[reader.query.class_name] for reader, _ in source.readers), default=1)
            for source in sources
        ]
    )
