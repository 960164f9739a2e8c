"""Path capacity: run the operator path of highest processing capacity."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.scheduling.bases.unit_level import UnitOptions, UnitPolicy
from mavstream_server.scheduling.mechanisms.segments import Unit
from mavstream_server.scheduling.policy import UnitKind
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import QueryView


@register
class PathCapacity(UnitPolicy[UnitOptions]):
    """MavStream thesis, 4.1.2: the ready path of highest processing capacity, leaf to root.

    Processing capacity is 1 / (c_1 + s_1 c_2 + ... + s_1 ... s_k-1 c_k) with costs c and selectivities s.
    Tuples wait only at leaves, and long on slow paths: low latency, much memory. Where a path reaches a
    split, it continues with the first reader; the other readers start paths of their own. A tuple in a shared
    pipeline counts once for each member, at the cost in all of them.
    """

    name = "path_capacity"
    optimises = "latency and a smooth output"
    unit = UnitKind.PATH
    Options = UnitOptions

    def units(self, query: QueryView) -> Sequence[Unit]:
        """Return the operator paths."""
        return query.units.paths

    def capacity(self, unit: Unit) -> float:
        """Return the processing capacity."""
        return unit.processing
