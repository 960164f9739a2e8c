"""Progress: the watermarks and ends of an operator's inputs, combined."""

from __future__ import annotations

from typing import TypedDict

from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, Mark


class State(TypedDict):
    """The saved state of a `Progress`."""

    ports: list[int]
    ended: list[int]
    since: int


class Progress:
    """Combines the marks of several inputs.

    The result has the lowest watermark and the lowest first time; it is an end when all inputs have ended.
    """

    __slots__ = ("ended", "ports", "since", "watermark")

    def __init__(self, ports: int) -> None:
        self.ports = [BEGIN_OF_TIME] * ports
        self.ended = [False] * ports
        self.watermark = BEGIN_OF_TIME
        self.since = END_OF_TIME

    def advance(self, port: int, mark: Mark) -> Mark | None:
        """Record an input's mark; returns the combined mark if it differs from the last one, else None."""
        ports = self.ports
        ports[port] = max(ports[port], mark.watermark)
        lowest = ports[0] if len(ports) == 1 else min(ports)
        if mark.since < self.since:
            self.since = mark.since
        over = False
        if mark.end:
            self.ended[port] = True
            over = all(self.ended)
        if lowest <= self.watermark and mark.gap is None and not over:
            return None
        self.watermark = max(self.watermark, lowest)
        return Mark(self.watermark, mark.arrival, mark.gap, over, self.since)

    def save(self) -> State:
        """Return the state for a snapshot."""
        ended = [int(ended) for ended in self.ended]
        return {"ports": list(self.ports), "ended": ended, "since": self.since}

    def load(self, state: State) -> None:
        """Restore the state from a snapshot."""
        self.ports = list(state["ports"])
        self.ended = [bool(ended) for ended in state["ended"]]
        self.watermark = min(self.ports)
        self.since = state["since"]
