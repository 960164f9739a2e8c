"""Base of round-robin policies on several cores: units run in the order in which they became ready."""

from __future__ import annotations

from collections import deque

from mavstream_server.scheduling.bases.multicore import MulticorePolicy, UnitT
from mavstream_server.scheduling.policy import OptionsT
from mavstream_server.scheduling.view import View


class MulticoreRing(MulticorePolicy[OptionsT, UnitT]):
    """Runs units in turn; an idle core takes the unit that has waited longest."""

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        self._ring: deque[UnitT] = deque()

    def enter(self, unit: UnitT) -> None:
        """Append the unit to the ring."""
        self._ring.append(unit)

    def pick(self, core: int) -> UnitT | None:
        """Return the unit that has waited longest."""
        ring = self._ring
        while ring:
            unit = ring.popleft()
            if not unit.gone:
                unit.in_line = False
                return unit
        return None
