"""Optimizer: takes one action at a time, on probation; retains it if it helps and undoes it otherwise.

Pure decisions: it maps a situation to the next change. The caller makes the change and calls again later.
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
    """Timing of the optimizer, in seconds unless stated otherwise."""

    probation: float = 15.0
    """Time before an action is judged: the situation that led to it must have left the sliding metrics."""
    bar: float = 120.0
    """Time during which an action that did not help is not tried again."""
    calm: float = 15.0
    """Time without missed targets before an action is reverted."""
    gain: float = 0.1
    """Share by which the distress must fall for an action to be retained."""


class Optimizer:
    """Tries its rules in order and takes the first action that was not found useless recently."""

    def __init__(
        self, rules: Sequence[OptimizerRule], pace: Pace | None = None, journal: Journal | None = None
    ) -> None:
        self.rules = list(rules)
        self.disabled: set[str] = set()
        """Names of disabled rules."""
        self.journal = journal or Journal()
        self.pace = pace or Pace()
        self._trial: Decision | None = None
        self._probation_end = 0.0  # when the probation ends
        self._requested: Decision | None = None  # the decision that the last change belongs to
        self._barred: dict[str, float] = {}  # end of the bar, by rule and change
        self._proposed: set[str] = set()  # what users were proposed since targets were last all met
        self._calm_since: float | None = None
        self._cooldowns: dict[str, Cooldown] = {}  # by rule

    @property
    def on_probation(self) -> Decision | None:
        """The action that is on probation, or None."""
        return self._trial

    def decide(self, situation: Situation) -> Change | None:
        """Return the change to make now, or None."""
        now, distress = situation.now, situation.monitor.distress
        if self._trial is not None:
            change = self._trial.proposal.change
            if isinstance(change, PlanChange) and change.query in situation.migrating:
                # A migration takes effect later, so the probation starts over.
                self._probation_end = now + self.pace.probation
            if now < self._probation_end:
                return None
            undo = self._judge(self._trial, now, situation)
            if undo is not None:
                return undo
        if distress > 0:
            self._calm_since = None
            return self._act(situation)
        self._calm_since = now if self._calm_since is None else self._calm_since
        if now < self._calm_since + self.pace.calm:
            return None
        self._proposed.clear()
        return self._relax(situation)

    def failed(self, reason: str, now: float) -> None:
        """Record that the last requested change could not be made."""
        if self._requested is not None:
            self._bar(self._requested.proposal, now)
            self.journal.end(self._requested, Outcome.FAILED, now, self._requested.after, reason)
            self._requested = self._trial = None

    def interrupted(self, now: float) -> None:
        """Record that nothing could be measured: probation and time without misses start over."""
        self._calm_since = None
        self._probation_end = now + self.pace.probation

    def overruled(self, reason: str, now: float) -> None:
        """Record that a user changed something: ends the probation, whose action can no longer be judged."""
        self._calm_since = self._requested = None
        if self._trial is not None:
            self.journal.end(self._trial, Outcome.OVERRULED, now, None, reason)
            self._trial = None

    def _judge(self, trial: Decision, now: float, situation: Situation) -> Change | None:
        """End a probation; returns the change that undoes the action if it did not help.

        Distress that was growing is assumed to have continued to grow without the action, for a limited time.
        """
        self._trial = None
        distress = situation.monitor.distress_from(trial.proposal.priority)
        expected = trial.before + min(trial.growth * (now - trial.at), trial.before)
        if distress <= expected * (1 - self.pace.gain):
            self.journal.end(trial, Outcome.KEPT, now, distress)
            return None
        self.journal.end(trial, Outcome.UNDONE, now, distress, "misses did not decrease enough")
        self._bar(trial.proposal, now)
        self._requested = trial
        return trial.proposal.undo

    def _act(self, situation: Situation) -> Change | None:
        for rule in self._enabled():
            for proposal in rule.propose(situation):
                if proposal.change is None:
                    self._note(proposal, situation)
                elif self._barred.get(_key(proposal), situation.now) <= situation.now:
                    before = situation.monitor.distress_from(proposal.priority)
                    self._trial = self._requested = self.journal.add(situation.now, proposal, before)
                    self._trial.growth = situation.monitor.growth_from(proposal.priority)
                    self._probation_end = situation.now + self.pace.probation
                    self._cooldown(rule).needed_again(situation.now, self.pace.bar)
                    return proposal.change
        return None

    def _note(self, proposal: Proposal, situation: Situation) -> None:
        """Note what only a user may do, once while targets are missed."""
        if proposal.what not in self._proposed:
            self._proposed.add(proposal.what)
            before = situation.monitor.distress_from(proposal.priority)
            decision = self.journal.add(situation.now, proposal, before)
            self.journal.end(decision, Outcome.PROPOSED, situation.now, None, "it is for you to decide")

    def _relax(self, situation: Situation) -> Change | None:
        for rule in self._enabled():
            if situation.now < self._cooldown(rule).until:
                continue
            for proposal in rule.relax(situation):
                self._cooldown(rule).relaxed(situation.now)
                decision = self.journal.add(situation.now, proposal, 0.0)
                self.journal.end(decision, Outcome.RELAXED, situation.now, 0.0)
                self._requested = decision
                # The next revert waits as long, so that the effect of this one shows first.
                self._calm_since = situation.now
                return proposal.change
        return None

    def _cooldown(self, rule: OptimizerRule) -> Cooldown:
        return self._cooldowns.setdefault(rule.name, Cooldown())

    def _enabled(self) -> list[OptimizerRule]:
        return [rule for rule in self.rules if rule.name not in self.disabled]

    def _bar(self, proposal: Proposal, now: float) -> None:
        self._barred[_key(proposal)] = now + self.pace.bar


def _key(proposal: Proposal) -> str:
    return f"{proposal.rule} {proposal.priority} {proposal.change!r}"
