"""Simplified segment: at most two segments per path, so that tuples wait at most twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from mavstream_server.scheduling.bases.unit_level import SegmentOptions, UnitPolicy
from mavstream_server.scheduling.mechanisms.segments import Unit
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import QueryView


class SimplifiedSegmentOptions(SegmentOptions):
    """Options of `simplified_segment`: those of `segment`, and where a path is cut."""

    gamma: Annotated[float, Field(gt=0, le=1)] = 0.9
    """The first segment ends at an operator whose release capacity is at most gamma times the one below."""


@register
class SimplifiedSegment(UnitPolicy[SimplifiedSegmentOptions]):
    """MavStream thesis, 4.1.4: as `segment`, but a path is cut at most once.

    The first segment continues while the next operator's release capacity is more than gamma times that of
    the one before and neither is negative; the rest is the second. Less latency and fewer decisions than
    `segment` for a little more memory.
    """

    name = "simplified_segment"
    optimises = "memory in queues, with less latency than segments"
    Options = SimplifiedSegmentOptions

    def units(self, query: QueryView) -> Sequence[Unit]:
        """Return the simplified segments."""
        return query.units.simplified_segments(self.options.gamma, self.options.answers)

    def capacity(self, unit: Unit) -> float:
        """Return the memory release capacity."""
        return unit.release
