"""Optimizer rules: propose changes against missed targets, without making them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from mavstream_server.optimizer.change import Proposal
from mavstream_server.optimizer.situation import Situation


class OptimizerRule(ABC):
    """A rule of the optimizer: one kind of action."""

    name: str
    about: str
    """What the rule does and when, in one sentence."""

    @abstractmethod
    def propose(self, situation: Situation) -> Iterable[Proposal]:
        """Return possible changes, most promising first; called while targets are missed or about to be."""

    def relax(self, situation: Situation) -> Iterable[Proposal]:
        """Return changes that revert earlier actions; called while all targets are met."""
        return ()
