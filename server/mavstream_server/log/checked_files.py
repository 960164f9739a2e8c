"""Which frames of segment files were verified, remembered while the files are unchanged.

Verifying a frame takes about as long as a simple query takes for its rows. So it is done once per process and
file, not for every cursor, and not again when a segment is mapped again: a changed file has another time of
modification and is verified anew.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mavstream_server.log.format.frame import Frame

CHECKSUM = "the checksum is wrong"
REPAIRED = "given up by a repair"
TEXTS = "texts of its rows were lost with an earlier frame"
"""Reasons of damage."""

_MOST_FILES = 4096
# Times of modification have the granularity of the kernel's tick: a later change could have the same one.
_TICK = 50_000_000  # ns


class DamagedFrames(NamedTuple):
    """Frames of a mapped segment that cannot be read, as one gap."""

    stop_offset: int
    """The byte offset of the next readable frame, or the end of the segment."""
    start: int
    stop: int
    """The positions from the first lost row to the one behind the last; equal if no row is lost."""
    arrival: int
    """The arrival time (ns) of the last frame before."""
    watermark: int
    max_time: int
    """Of the log behind the damage, in us."""

    @classmethod
    def of(cls, frame: Frame) -> DamagedFrames:
        """Return a frame whose rows cannot be read."""
        largest = max(frame.max_before, frame.largest_time(frame.rows))
        stop_offset = frame.byte_offset + frame.nbytes
        return cls(stop_offset, frame.first_position, frame.stop, frame.arrival, frame.after, largest)


class CheckedFile:
    """What is known of one file: frames before `until` were verified, all but `damaged` ones are intact."""

    __slots__ = ("damaged", "header_reported", "until")

    def __init__(self) -> None:
        self.until = 0
        """A byte offset."""
        self.damaged: dict[int, DamagedFrames] = {}
        """Damaged frames by byte offset."""
        self.header_reported = False
        """Whether the damage of its header was reported."""


_known: OrderedDict[tuple[int, int, int, int], CheckedFile] = OrderedDict()


def checked_file(found: os.stat_result) -> CheckedFile:
    """Return what is known of an open file: shared by all who map the same unchanged file."""
    key = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
    known = _known.get(key)
    if known is not None:
        _known.move_to_end(key)
        return known
    known = CheckedFile()
    if time.time_ns() - found.st_mtime_ns > _TICK:
        _known[key] = known
        if len(_known) > _MOST_FILES:
            _known.popitem(last=False)
    return known
