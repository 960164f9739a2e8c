"""How a target stands: kept, at risk or missed, and since when. Single outliers change nothing."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from mavstream_protocol.optimizer import TargetState as TargetState

PATIENCE = 3
"""Judgements in a row before a target counts as missed, or as kept again."""
_CHANGES = 50  # remembered
_PRESSING = 0.4  # of a target: below, growth is not worth a thought yet


class TargetStatusChange(NamedTuple):
    """A target that stands otherwise than before."""

    at: float
    before: TargetState
    after: TargetState
    measured: float | None


class TargetStatus:
    """One target over time.

    What is judged is a ratio: the measured value divided by the target, or the other way round where more is
    better, so that up to 1 is good. Beyond 1 + tolerance for `patience` judgements in a row is missed; up to
    1 for as many is kept again. So a value that moves about the target does not flap. Where it `foresees`, a
    value that grows so fast that it will be missed is at risk, and `foreseen` tells how far off it will be.
    """

    def __init__(self, patience: int = PATIENCE, *, foresees: bool = False) -> None:
        self._patience = patience
        self._foresees = foresees
        self._over = self._under = 0
        self.state = TargetState.UNKNOWN
        self.since: float | None = None
        self.measured: float | None = None
        self.ratio: float | None = None
        self._tolerance = 0.0
        self._last: deque[tuple[float, float]] = deque(maxlen=patience)  # times and ratios
        self.changes: deque[TargetStatusChange] = deque(maxlen=_CHANGES)

    def judge(self, ratio: float | None, tolerance: float, measured: float | None, now: float) -> TargetState:
        """Take in a measurement; None if there is none."""
        self.ratio, self.measured, self._tolerance = ratio, measured, tolerance
        if ratio is None:
            self._last.clear()
        else:
            self._last.append((now, ratio))
        self._become(self._next(ratio, tolerance), now)
        return self.state

    @property
    def growth(self) -> float:
        """By how much the ratio grows per second, over the last few judgements; 0 if it does not."""
        if len(self._last) < 2:
            return 0.0
        (begin, first), *_, (end, last) = self._last
        return max(0.0, (last - first) / (end - begin)) if end > begin else 0.0

    @property
    def foreseen(self) -> float | None:
        """The ratio that it comes to in as many judgements as patience lasts, if that will be missed."""
        growth = self.growth if self._foresees else 0.0
        if not growth or self.state is TargetState.MISSED or self.ratio is None or self.ratio < _PRESSING:
            return None
        spacing = (self._last[-1][0] - self._last[0][0]) / (len(self._last) - 1)
        ratio = self.ratio + growth * spacing * self._patience
        return ratio if ratio > 1 + self._tolerance else None

    def _next(self, ratio: float | None, tolerance: float) -> TargetState:
        if ratio is None:
            self._over = self._under = 0
            return TargetState.UNKNOWN
        self._over = self._over + 1 if ratio > 1 + tolerance else 0
        self._under = self._under + 1 if ratio <= 1 else 0
        if self._over:
            enough = self._over >= self._patience or self.state is TargetState.MISSED
            return TargetState.MISSED if enough else TargetState.AT_RISK
        if not self._under or self.foreseen is not None:
            return TargetState.AT_RISK
        calm = self._under >= self._patience or self.state in (TargetState.KEPT, TargetState.UNKNOWN)
        return TargetState.KEPT if calm else TargetState.AT_RISK

    def _become(self, state: TargetState, now: float) -> None:
        if state is self.state:
            return
        self.changes.append(TargetStatusChange(now, self.state, state, self.measured))
        self.state = state
        self.since = None if state is TargetState.UNKNOWN else now
