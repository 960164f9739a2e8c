"""Options of a query that are not part of its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.queries import OnError


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a query that are not part of its plan; times are arrival times in microseconds."""

    on_error: OnError = OnError.NULL
    one_time: bool = False
    start_at: int | None = None
    stop_at: int | None = None
    since: int | None = None
    """When a one-time query started: windows that had closed before do not end it."""
    utility: Mapping[str, Expression] = field(default_factory=dict)
    """The utility of rows by stream: where load is shed, rows of least utility go first; any rows without."""
