"""Rules: what could be done about a target that is missed. They propose, and do nothing themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from mavstream_server.optimizer.change import Proposal
from mavstream_server.optimizer.situation import Situation


class OptimizerRule(ABC):
    """One kind of action."""

    name: str
    about: str
    """What it does and when, in a sentence."""

    @abstractmethod
    def propose(self, situation: Situation) -> Iterable[Proposal]:
        """Return what could be done now, the most promising first."""

    def relax(self, situation: Situation) -> Iterable[Proposal]:
        """Return what of earlier actions is not needed any more, now that all targets are kept."""
        return ()
