"""Traces: what was run when, as a number to compare two runs by."""

from __future__ import annotations

from hashlib import blake2b

from mavstream_server.scheduling.view import Report, Slice


class Trace:
    """Takes in every slice of a run; two runs with the same digest did the same at the same times."""

    __slots__ = ("_hash", "slices")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.slices = 0

    def add(self, now: int, core: int, slice_: Slice, report: Report) -> None:
        """Take in a slice that has ended."""
        numbers = [operator.number for operator in slice_.operators]
        self._hash.update(repr((now, core, numbers, tuple(report))).encode())
        self.slices += 1

    @property
    def digest(self) -> str:
        """The number, as text."""
        return self._hash.hexdigest()
