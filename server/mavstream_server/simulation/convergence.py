"""Convergence: how often a policy changed its schedule against inversions, and when it did so last."""

from __future__ import annotations

from typing import Any, NamedTuple

from mavstream_server.scheduling.inversion_monitor import InversionMonitor, Verdict
from mavstream_server.scheduling.policy import Policy
from mavstream_server.simulation.sources import Clock


class Convergence(NamedTuple):
    """Of the dissertation, 6.2.3: convergence updates and convergence time."""

    updates: int
    seconds: float
    """The time of the last update; 0 if there was none."""


class ConvergenceWatch:
    """Stands in front of the monitor of a policy that has one, and notes when frequencies change."""

    def __init__(self, policy: Policy[Any], clock: Clock) -> None:
        self._clock = clock
        self._updates = self._last = 0
        monitor = getattr(policy, "_monitor", None)
        self.watches = isinstance(monitor, InversionMonitor)
        if isinstance(monitor, InversionMonitor):
            self._close_window = monitor.close_window
            monitor.close_window = self._close  # type: ignore[method-assign]

    def _close(self) -> Verdict:
        verdict = self._close_window()
        if verdict.changed:
            self._updates += 1
            self._last = self._clock.now
        return verdict

    @property
    def found(self) -> Convergence | None:
        """What was noted, or None if the policy corrects nothing."""
        return Convergence(self._updates, self._last / 1e9) if self.watches else None
