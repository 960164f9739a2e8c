"""How a writer treats its files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Sync(StrEnum):
    """When rows reach the disk itself; the death of a process never loses what was appended."""

    NEVER = "never"
    """When the system sees fit; power loss may take the last seconds."""
    GROUP = "group"
    """At `flush`: append for many, flush once, then acknowledge all."""
    EACH = "each"
    """Before each append returns."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a writer treats its files; may differ from one opening to the next."""

    segment_bytes: int = 64 << 20
    segment_texts: int = 65_536
    """A segment ends when its dictionaries together have more texts,"""
    segment_text_bytes: int = 4 << 20
    """or more characters than this, so that ever-new strings do not grow memory."""
    sync: Sync = Sync.NEVER
    quota: int | None = None
    """Bytes on disk beyond which `over_quota` holds; the writer itself refuses nothing."""
