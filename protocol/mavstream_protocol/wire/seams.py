"""Seams: where the plan of a running query was replaced, and what the new plan lacks."""

from __future__ import annotations

from pydantic import ConfigDict

from mavstream_protocol.described import Described

_CONFIG = ConfigDict(frozen=True)


class NotRetained(Described):
    """Rows of a stream from before a seam that the new plan would need and that are not stored any more."""

    model_config = _CONFIG
    stream: str
    """The stream, or the query whose results they were."""
    first: int
    """Position of the first row that is still stored."""
    until: str | None
    """The latest time of the rows before it; null if they had no time.

    Windows that begin then or earlier are not answered, and pairs with rows up to then are missing.
    """

    def __str__(self) -> str:
        """Return it as a sentence."""
        time = "" if self.until is None else f", with times up to {self.until},"
        windows = "windows that they could be in" if self.until is None else "windows that begin by then"
        return (
            f"rows of {self.stream} before position {self.first}{time} are not stored any more: {windows} "
            "are not answered, and pairs with them are missing"
        )


class Seam(Described):
    """Where the plan of a query was replaced for the last time."""

    model_config = _CONFIG
    revision: int
    """How often it was replaced by then."""
    offset: int
    """Offset of the first answer of the new plan."""
    not_retained: tuple[NotRetained, ...] = ()
    """Rows that it would have needed; none if its answers are whole from the start."""
