"""Monitor of response times per class and window that maintains corrected frequencies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mavstream_server.scheduling.mechanisms.inversion.additive import (
    DecreaseSide,
    DecreaseViolator,
    IncreaseSide,
    IncreaseVictim,
)
from mavstream_server.scheduling.mechanisms.inversion.cascade import Cascade
from mavstream_server.scheduling.mechanisms.inversion.correction import (
    ClassState,
    InversionModule,
    NoCorrection,
)
from mavstream_server.scheduling.view import Report

MODULES: dict[str, type[InversionModule]] = {
    module.name: module
    for module in (NoCorrection, DecreaseViolator, IncreaseVictim, DecreaseSide, IncreaseSide, Cascade)
}
"""The inversion modules by name."""


class WindowOutcome(NamedTuple):
    """Outcome of a window."""

    inverted: bool
    """Whether a class has answered later than a less important one."""
    changed: bool
    """Whether frequencies have changed."""


class _ClassWindow:
    __slots__ = ("answers", "frequency", "least", "most", "priority", "response", "slices")

    def __init__(self, priority: int, bounds: tuple[float, float]) -> None:
        self.priority = priority
        self.frequency: float = priority
        self.least, self.most = bounds
        self.answers = 0
        self.response = 0
        self.slices: list[tuple[float, int]] = []
        """Mean response time and answers of each slice; only kept where a percentile is used."""

    def state(self, level: int | None) -> ClassState:
        response = None
        if self.answers:
            response = self.response / self.answers if level is None else self._percentile(level)
        return ClassState(self.priority, self.frequency, response, self.least)

    def _percentile(self, level: int) -> float:
        """Return the percentile over answers, each with the mean response time of its slice."""
        above = self.answers * (100 - level) / 100
        ranked = sorted(self.slices, reverse=True)
        for response, answers in ranked:
            above -= answers
            if above < 0:
                return response
        return ranked[-1][0]

    def begin(self, frequency: float) -> None:
        self.frequency = min(max(frequency, self.least), self.most)
        self.answers = self.response = 0
        self.slices = []


class InversionMonitor:
    """Maintains a frequency for each class, corrected when classes are inverted.

    The dissertation specifies neither the averaging period nor that a correction ever ends. Here a window
    is the time since the previous window was closed, frequencies stay within a factor of `limit` of the
    priorities, and after `calm` windows without an inversion the module may undo part of its corrections.
    `level` is the percentile at which classes are compared, None for the mean.
    """

    def __init__(self, module: InversionModule, limit: float, calm: int, level: int | None = None) -> None:
        self._module = module
        self._limit = limit
        self._calm = calm
        self._level = level
        self._calm_windows = 0
        self._classes: dict[str, _ClassWindow] = {}  # by descending priority
        self.updated: Callable[[], None] = _ignore_update
        """Called whenever a window has changed frequencies."""

    def assign(self, priorities: Mapping[str, int]) -> None:
        """Set the classes and their priorities; if they have changed, corrections are reset."""
        if priorities == {name: window.priority for name, window in self._classes.items()}:
            return
        order = sorted(priorities, key=lambda name: (-priorities[name], name))
        bounds = self._module.bounds
        self._classes = {
            name: _ClassWindow(priorities[name], bounds(priorities[name], self._limit)) for name in order
        }

    def frequency(self, class_name: str) -> float:
        """Return the current frequency of a class: its slots per round."""
        return self._classes[class_name].frequency

    def record(self, class_name: str, report: Report) -> None:
        """Count the answers of a slice."""
        if (window := self._classes.get(class_name)) is not None:
            window.answers += report.answers
            window.response += report.response
            if self._level is not None and report.answers:
                window.slices.append((report.response / report.answers, report.answers))

    def close_window(self) -> WindowOutcome:
        """Evaluate the window, correct frequencies, and start a new window."""
        if len(self._classes) < 2:
            return WindowOutcome(False, False)
        classes = list(self._classes.values())
        states = [window.state(self._level) for window in classes]
        found = self._module.find(states)
        before = frequencies = [window.frequency for window in classes]
        if found:
            self._calm_windows = 0
            frequencies = self._module.correct(states, found)
        else:
            self._calm_windows += 1
            if self._calm_windows > self._calm:
                frequencies = self._module.recover(states)
        for window, frequency in zip(classes, frequencies, strict=True):
            window.begin(frequency)
        changed = before != [window.frequency for window in classes]
        if changed:
            self.updated()
        return WindowOutcome(bool(found), changed)


def _ignore_update() -> None:
    """Do nothing: the default callback."""
