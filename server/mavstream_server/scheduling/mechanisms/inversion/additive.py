"""The dissertation's inversion modules (6.1.5) with their errors corrected: steps of one slot."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from mavstream_server.scheduling.mechanisms.inversion.correction import (
    ClassState,
    Inversion,
    InversionModule,
    priority_groups,
)


class DecreaseViolator(InversionModule):
    """Algorithm 4, DVP: the violator loses one; if it has none to lose, the victim gains one.

    Line 3 tests the violator's frequency. Where the loss would tie it with the class below, that class loses
    one too, and so on downwards; the printed rule, to raise on a tie and to double when nothing changes,
    diverges.
    """

    name = "dvp"

    def correct(self, classes: Sequence[ClassState], found: Sequence[Inversion]) -> list[float]:
        """Lower each violator, or raise its victim if that is not possible."""
        now = [state.frequency for state in classes]
        for victim, violator in found:
            lower = now.copy()
            lower[violator] -= 1
            lower = _lowered_below(classes, lower)
            if all(one >= state.least for one, state in zip(lower, classes, strict=True)):
                now = lower
            else:
                now[victim] += 1
                now = _raised_above(classes, now)
        return now


class StepwiseRecovery(DecreaseViolator):
    """ABD's variant (5.2.2): as DVP, and corrections are undone in steps of one after a calm period."""

    def recover(self, classes: Sequence[ClassState]) -> list[float]:
        """Move each frequency one step back towards the priority."""
        return [one.frequency + max(-1, min(1, one.priority - one.frequency)) for one in classes]


class IncreaseVictim(InversionModule):
    """Algorithm 5, IVP: the victim gains one, as does a class above that it would tie with.

    The tie rule is in the text only. Nothing is ever lowered, so frequencies only grow.
    """

    name = "ivp"

    def correct(self, classes: Sequence[ClassState], found: Sequence[Inversion]) -> list[float]:
        """Raise the victims."""
        now = [state.frequency for state in classes]
        for victim, _ in found:
            now[victim] += 1
        return _raised_above(classes, now)


class DecreaseSide(InversionModule):
    """Algorithm 6, DSP: every class from the violator downwards loses one for each violator above it.

    The loop goes downwards from the top, the violator of a pair is the lower class, and no class gets less
    than one. If that changes nothing, the classes that have more than the violator gain one.
    """

    name = "dsp"

    def correct(self, classes: Sequence[ClassState], found: Sequence[Inversion]) -> list[float]:
        """Lower the violators and all below, or raise the classes above if that changes nothing."""
        before = [state.frequency for state in classes]
        violators = {violator for _, violator in found}
        now, loss = before.copy(), 0
        for index, state in enumerate(classes):
            loss += index in violators
            now[index] = max(state.least, now[index] - loss)
        now = _raised_above(classes, now)
        if now == before:
            now = [one + sum(one > before[violator] for violator in violators) for one in before]
        return now


class IncreaseSide(InversionModule):
    """Algorithm 7, ISP: every class from the victim upwards gains one for each victim below it.

    The printed loop stops before the top class; this one goes up to it.
    """

    name = "isp"

    def correct(self, classes: Sequence[ClassState], found: Sequence[Inversion]) -> list[float]:
        """Raise the victims and all above."""
        victims = {victim for victim, _ in found}
        now = [state.frequency for state in classes]
        gain = 0
        for index in reversed(range(len(now))):
            gain += index in victims
            now[index] += gain
        return now


def _lowered_below(classes: Sequence[ClassState], frequencies: Sequence[float]) -> list[float]:
    """Lower classes until each has less than every more important one; may go below one."""
    return _with_steps(classes, frequencies, 1)


def _raised_above(classes: Sequence[ClassState], frequencies: Sequence[float]) -> list[float]:
    """Raise classes until each has more than every less important one."""
    return _with_steps(classes, frequencies, -1)


def _with_steps(classes: Sequence[ClassState], frequencies: Sequence[float], way: int) -> list[float]:
    """Visit the classes downwards (1) or upwards (-1), keeping a step of one between priorities."""
    steps = list(frequencies)
    limit = inf
    for group in priority_groups(classes)[::way]:
        for index in group:
            steps[index] = way * min(way * steps[index], limit)
        limit = min(way * steps[index] for index in group) - 1
    return steps
