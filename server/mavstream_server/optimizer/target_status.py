"""Target status: kept, at risk or missed, and since when, with hysteresis against outliers."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from mavstream_protocol.optimizer import TargetState as TargetState

PATIENCE = 3
"""Consecutive judgements until a target counts as missed, or as kept again."""
_MAX_CHANGES = 50  # status changes stored per target
_MIN_GROWING_RATIO = 0.4  # of a target: growth below this ratio is ignored


class TargetStatusChange(NamedTuple):
    """A change of a target's status."""

    at: float
    before: TargetState
    after: TargetState
    measured: float | None


class TargetStatus:
    """Status of one target over time.

    Judged is a ratio, the measured value divided by the target (inverted where more is better), so that up to
    1 is met. Above 1 + tolerance for `patience` consecutive judgements is missed; up to 1 for as many is kept
    again, so that values near the target do not flap. With `foresees`, a value that grows fast enough to miss
    the target soon is at risk, and `foreseen` is its extrapolated ratio.
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
        self.changes: deque[TargetStatusChange] = deque(maxlen=_MAX_CHANGES)

    def judge(self, ratio: float | None, tolerance: float, measured: float | None, now: float) -> TargetState:
        """Add a measurement, None if there is none, and return the new state."""
        self.ratio, self.measured, self._tolerance = ratio, measured, tolerance
        if ratio is None:
            self._last.clear()
        else:
            self._last.append((now, ratio))
        self._become(self._next(ratio, tolerance), now)
        return self.state

    @property
    def growth(self) -> float:
        """Growth of the ratio per second over the last judgements; 0 if it does not grow."""
        if len(self._last) < 2:
            return 0.0
        (begin, first), *_, (end, last) = self._last
        return max(0.0, (last - first) / (end - begin)) if end > begin else 0.0

    @property
    def foreseen(self) -> float | None:
        """Ratio extrapolated by `patience` judgements if the target will be missed then, else None."""
        growth = self.growth if self._foresees else 0.0
        if (
            not growth
            or self.state is TargetState.MISSED
            or self.ratio is None
            or self.ratio < _MIN_GROWING_RATIO
        ):
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
