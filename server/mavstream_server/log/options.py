"""Options of a log writer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Sync(StrEnum):
    """When appended rows are synced to disk; the death of a process never loses them in any case."""

    NEVER = "never"
    """When the operating system decides to; power loss may lose the last seconds."""
    GROUP = "group"
    """At `flush`: append for many, flush once, then acknowledge all."""
    EACH = "each"
    """Before each append returns."""


_RESULT_SEGMENT_BYTES = 32 << 10, 1 << 20
"""Smallest and largest size: retention removes whole segments, so small logs have small ones."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options of a log writer; they may differ each time that a log is opened."""

    segment_bytes: int = 64 << 20
    segment_texts: int = 65_536
    """The most texts in the dictionaries of a segment, together; beyond that a new segment starts."""
    segment_text_bytes: int = 4 << 20
    """The most characters in the dictionaries of a segment; beyond that a new segment starts.

    Both bound the memory that strings take which never repeat.
    """
    sync: Sync = Sync.NEVER
    quota: int | None = None
    """The bytes on disk above which `over_quota` is true; the writer itself never rejects rows for it."""


def result_log_options(max_bytes: int, sync: Sync = Sync.NEVER) -> LogOptions:
    """Return the options of a result log of which so many bytes are retained."""
    smallest, largest = _RESULT_SEGMENT_BYTES
    return LogOptions(segment_bytes=min(max(max_bytes // 8, smallest), largest), sync=sync)
