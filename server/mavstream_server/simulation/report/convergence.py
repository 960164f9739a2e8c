"""Convergence of policies that correct inversions: number of updates and time of the last one."""

from __future__ import annotations

from typing import Any, NamedTuple

from mavstream_server.scheduling.policies.abd import AdaptiveBroadcastDisk
from mavstream_server.scheduling.policies.mbd import MulticoreBroadcastDisk
from mavstream_server.scheduling.policy import Policy
from mavstream_server.simulation.model.sources import VirtualClock


class Convergence(NamedTuple):
    """Convergence updates and convergence time (dissertation, 6.2.3)."""

    updates: int
    seconds: float
    """Time of the last update in seconds; 0 if there was none."""


class ConvergenceWatch:
    """Records when the inversion monitor of a policy changes frequencies."""

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
        """The recorded convergence, or None if the policy has no inversion monitor."""
        return Convergence(self._updates, self._last / 1e9) if self._watches else None
