"""Segment: run the segment of operators that frees memory fastest."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.scheduling.bases.unit_level import UnitOptions, UnitPolicy
from mavstream_server.scheduling.mechanisms.segments import Unit
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import QueryView


@register
class Segment(UnitPolicy[UnitOptions]):
    """MavStream thesis, 4.1.3: the ready segment of highest memory release capacity, bottom-up.

    Memory release capacity is the processing capacity times (size in - size out x s_1 ... s_k). Paths are cut
    where an operator frees memory no faster than the one before it, and where one of the two has a negative
    capacity; a segment inside another one is left out. The fan-out of a shared pipeline passes a tuple to
    each member and so frees nothing. Little memory, but hardly any answers under overload, because the
    operators at the bottom free most.
    """

    name = "segment"
    optimises = "memory in queues"
    Options = UnitOptions

    def units(self, query: QueryView) -> Sequence[Unit]:
        """Return the segments."""
        return query.units.segments

    def capacity(self, unit: Unit) -> float:
        """Return the memory release capacity."""
        return unit.release
