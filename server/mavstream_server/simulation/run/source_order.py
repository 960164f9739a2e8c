"""Order in which cores that run only sources read them."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

from mavstream_server.scheduling.mechanisms.broadcast_disk import BroadcastDisk, SlotHolder
from mavstream_server.simulation.model.sources import SourceOperator
from mavstream_server.simulation.scenario import Scenario, SourceOrder


class RoundRobinOrder:
    """Sources, by index, take turns."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        """Sources that have something to read, in ascending order."""
        self._last = -1

    def add(self, index: int) -> None:
        """Add a source that has something to read."""
        insort(self.waiting, index)

    def take(self) -> int:
        """Remove and return the next source."""
        at = bisect_right(self.waiting, self._last)
        self._last = self.waiting.pop(at if at < len(self.waiting) else 0)
        return self._last


class BroadcastDiskOrder:
    """Sources have slots by priority, as in the variant of MBD for sources (dissertation, 6.3.6)."""

    def __init__(self, priorities: Sequence[int]) -> None:
        self._disk: BroadcastDisk[int] = BroadcastDisk()
        self._holders = [SlotHolder(index, priority, index) for index, priority in enumerate(priorities)]
        self.waiting = 0
        """Number of sources that have something to read."""

    def add(self, index: int) -> None:
        """Add a source that has something to read."""
        self.waiting += 1
        self._disk.wake(self._holders[index])

    def take(self) -> int:
        """Remove and return the source of the next slot."""
        self.waiting -= 1
        taken = self._disk.take()
        assert taken is not None
        return taken.item


def source_order(
    scenario: Scenario, sources: Sequence[SourceOperator]
) -> RoundRobinOrder | BroadcastDiskOrder:
    """Return the order that a scenario asks for, without any source waiting."""
    if scenario.sources.order is SourceOrder.ROUND_ROBIN:
        return RoundRobinOrder()
    return BroadcastDiskOrder(
        [
            max((scenario.priorities[reader.query.class_name] for reader, _ in source.readers), default=1)
            for source in sources
        ]
    )
