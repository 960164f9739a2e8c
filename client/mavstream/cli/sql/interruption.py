"""Ctrl-C as a question that is asked at safe points, instead of an exception at any point."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any


class Interruption:
    """Notes Ctrl-C inside its block; so what the block began can be ended in order."""

    def __init__(self) -> None:
        self._happened = False
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> Interruption:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def happened(self) -> bool:
        """Return whether Ctrl-C was pressed since the block was entered."""
        return self._happened

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._happened = True
