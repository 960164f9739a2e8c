"""Convergence: how often a policy changed its schedule against inversions, and when it did so last."""

from __future__ import annotations

from typing import Any, NamedTuple

from mavstream_server.scheduling.policies.abd import AdaptiveBroadcastDisk
from mavstream_server.scheduling.policies.mbd import MulticoreBroadcastDisk
from mavstream_server.scheduling.policy import Policy
from mavstream_server.simulation.model.sources import VirtualClock


class Convergence(NamedTuple):
    """Of the dissertation, 6.2.3: convergence updates and convergence time."""

    updates: int
    seconds: float
    """The time of the last update; 0 if there was none."""


class ConvergenceWatch:
    """Notes when the monitor of a policy that has one changes frequencies."""

    def __init__(self, policy: Policy[Any], clock: VirtualClock) -> None:
        self._clock = clock
        self._updates = self._last = 0
        self._watches = isinstance(policy, AdaptiveBroadcastDisk | MulticoreBroadcastDisk)
        if isinstance(policy, AdaptiveBroadcastDisk | MulticoreBroadcastDisk):
            policy.monitor.updated = self._note

    def _note(self) -> None:
        self._updates += 1
        self._last = self._clock.now

    @property
    def found(self) -> Convergence | None:
        """What was noted, or None if the policy corrects nothing."""
        return Convergence(self._updates, self._last / 1e9) if self._watches else None
