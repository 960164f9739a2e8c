"""The optimizer: one action at a time, each on probation, kept if it helps and undone if it does not.

Pure: it looks at a situation and says what to change; whoever calls it does that, and calls again later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mavstream_server.optimizer.change import Change, PlanChange, Proposal
from mavstream_server.optimizer.cooldown import Cooldown
from mavstream_server.optimizer.journal import Decision, Journal, Outcome
from mavstream_server.optimizer.rule import OptimizerRule
from mavstream_server.optimizer.situation import Situation


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take. Seconds."""

    probation: float = 15.0
    """Before an action is judged: what it was taken for must have left the sliding figures."""
    bar: float = 120.0
    """In which an action that did not help is not tried again."""
    calm: float = 15.0
    """Without a missed target before anything is taken back."""
    gain: float = 0.1
    """The share by which less must be missed for an action to be kept."""


class Optimizer:
    """Goes through its rules in order, and takes the first action that was not found useless lately."""

    def __init__(
        self, rules: Sequence[OptimizerRule], pace: Pace | None = None, journal: Journal | None = None
    ) -> None:
        self.rules = list(rules)
        self.disabled: set[str] = set()
        """Names of rules that are switched off."""
        self.journal = journal or Journal()
        self.pace = pace or Pace()
        self._trial: Decision | None = None
        self._due = 0.0  # when it is judged
        self._asked: Decision | None = None  # what the last change belongs to
        self._barred: dict[str, float] = {}  # until when, by rule and change
        self._calm_since: float | None = None
        self._holds: dict[str, Cooldown] = {}  # by rule

    @property
    def on_probation(self) -> Decision | None:
        """The action that waits to be judged."""
        return self._trial

    def decide(self, situation: Situation) -> Change | None:
        """Return what to change now, or None."""
        now, distress = situation.now, situation.monitor.distress
        if self._trial is not None:
            change = self._trial.proposal.change
            if isinstance(change, PlanChange) and change.query in situation.swapping:
                self._due = now + self.pace.probation  # it has only begun
            if now < self._due:
                return None
            undo = self._judge(self._trial, now, situation)
            if undo is not None:
                return undo
        if distress > 0:
            self._calm_since = None
            return self._act(situation)
        self._calm_since = now if self._calm_since is None else self._calm_since
        return self._relax(situation) if now >= self._calm_since + self.pace.calm else None

    def failed(self, reason: str, now: float) -> None:
        """The change that was asked for last could not be made."""
        if self._asked is not None:
            self._bar(self._asked.proposal, now)
            self.journal.end(self._asked, Outcome.FAILED, now, self._asked.after, reason)
            self._asked = self._trial = None

    def interrupted(self, now: float) -> None:
        """Nothing could be measured: a trial begins anew, and so does the calm."""
        self._calm_since = None
        self._due = now + self.pace.probation

    def overruled(self, reason: str, now: float) -> None:
        """A person has changed something: what is on trial cannot be judged any more."""
        self._calm_since = self._asked = None
        if self._trial is not None:
            self.journal.end(self._trial, Outcome.OVERRULED, now, None, reason)
            self._trial = None

    def _judge(self, trial: Decision, now: float, situation: Situation) -> Change | None:
        """End a probation; returns what undoes an action that did not help.

        What was missed by more and more each second would have gone on so without it, if not for ever.
        """
        self._trial = None
        distress = situation.monitor.distress_from(trial.proposal.priority)
        expected = trial.before + min(trial.growth * (now - trial.at), trial.before)
        if distress <= expected * (1 - self.pace.gain):
            self.journal.end(trial, Outcome.KEPT, now, distress)
            return None
        self.journal.end(trial, Outcome.UNDONE, now, distress, "it did not help")
        self._bar(trial.proposal, now)
        self._asked = trial
        return trial.proposal.undo

    def _act(self, situation: Situation) -> Change | None:
        for rule in self._enabled():
            for proposal in rule.propose(situation):
                if self._barred.get(_key(proposal), situation.now) <= situation.now:
                    before = situation.monitor.distress_from(proposal.priority)
                    self._trial = self._asked = self.journal.add(situation.now, proposal, before)
                    self._trial.growth = situation.monitor.growth_from(proposal.priority)
                    self._due = situation.now + self.pace.probation
                    self._hold(rule).needed_again(situation.now, self.pace.bar)
                    return proposal.change
        return None

    def _relax(self, situation: Situation) -> Change | None:
        for rule in self._enabled():
            if situation.now < self._hold(rule).until:
                continue
            for proposal in rule.relax(situation):
                self._hold(rule).relaxed(situation.now)
                decision = self.journal.add(situation.now, proposal, 0.0)
                self.journal.end(decision, Outcome.RELAXED, situation.now, 0.0)
                self._asked = decision
                # The next step back waits as long: what this one does must show first.
                self._calm_since = situation.now
                return proposal.change
        return None

    def _hold(self, rule: OptimizerRule) -> Cooldown:
        return self._holds.setdefault(rule.name, Cooldown())

    def _enabled(self) -> list[OptimizerRule]:
        return [rule for rule in self.rules if rule.name not in self.disabled]

    def _bar(self, proposal: Proposal, now: float) -> None:
        self._barred[_key(proposal)] = now + self.pace.bar


def _key(proposal: Proposal) -> str:
    return f"{proposal.rule} {proposal.priority} {proposal.change!r}"
