"""Segment: run the segment of operators that frees memory fastest."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.scheduling.bases.unit_level import SegmentOptions, UnitPolicy
from mavstream_server.scheduling.mechanisms.segments import Unit
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import QueryView


@register
class Segment(UnitPolicy[SegmentOptions]):
    """MavStream thesis, 4.1.3: the ready segment of highest memory release capacity, bottom-up.

    Memory release capacity is the processing capacity times (size in - size out x s_1 ... s_k). Paths are cut
    where the next operator alone frees memory no faster than the one before alone, and where one of the two
    has a negative capacity; a segment inside another one is left out. The size in of the first operator is
    what its source emits, the size out of the last one that of an answer (`answers`). Tuples of a shared
    pipeline count once for each member; the fan-out frees none, but what members free above it counts. Little
    memory, but hardly any answers under overload, because the operators at the bottom free most.
    """

    name = "segment"
    optimises = "memory in queues"
    Options = SegmentOptions

    def units(self, query: QueryView) -> Sequence[Unit]:
        """Return the segments."""
        return query.units.segments(self.options.answers)

    def capacity(self, unit: Unit) -> float:
        """Return the memory release capacity."""
        return unit.release
