"""Base of policies that schedule classes and run an inner policy inside each class."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from mavstream_server.scheduling.policy import Level, OptionsT, Policy
from mavstream_server.scheduling.registry import InnerPolicy
from mavstream_server.scheduling.view import OperatorView, QueryView, Report, Slice, View


class ClassLevelPolicy(Policy[OptionsT]):
    """Keeps one inner policy per class; subclasses decide which class runs and for how long.

    A class is added with its first query and removed with its last.
    """

    level = Level.CLASS

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        inner = self.inner.make(view)
        self.watches_growth = inner.watches_growth
        self.unit = inner.unit
        self._inner: dict[str, Policy[Any]] = {}
        self._queries: dict[str, int] = {}
        self._awake: dict[str, int] = {}  # classes that may have something ready, and since when (ns)
        self._now = 0
        self._under_way: dict[int, str] = {}  # class of a running slice, by its first operator's number

    @property
    @abstractmethod
    def inner(self) -> InnerPolicy:
        """The policy that decides inside a class."""

    @abstractmethod
    def classes_changed(self) -> None:
        """React to classes that were added or removed, or to changed priorities."""

    @property
    def classes(self) -> list[str]:
        """The classes that have queries, highest priority first."""
        priorities = self.view.priorities
        return sorted(self._inner, key=lambda name: (-priorities.get(name, 1), name))

    def priority(self, class_name: str) -> int:
        """Return the priority of a class."""
        return self.view.priorities.get(class_name, 1)

    def any_behind(self, patience: int) -> bool:
        """Return whether any class has had something to do all the time for longer than `patience` (ns)."""
        return any(self._now - since > patience for since in self._awake.values())

    def ask(self, class_name: str, core: int, now: int) -> Slice | None:
        """Return the next slice of a class, or None if nothing of it is ready."""
        if class_name not in self._awake:
            return None
        self._now = now
        slice_ = self._inner[class_name].next(core, now)
        if slice_ is None:
            del self._awake[class_name]
        else:
            self._under_way[slice_.operators[0].number] = class_name
        return slice_

    def admit(self, query: QueryView) -> None:
        """Admit the query to the inner policy of its class."""
        name = query.class_name
        new = name not in self._inner
        if new:
            self._inner[name] = self.inner.make(self.view)
            self._queries[name] = 0
        self._queries[name] += 1
        self._inner[name].admit(query)
        if new:
            self.classes_changed()

    def retire(self, query: QueryView) -> None:
        """Retire the query from the inner policy of its class."""
        name = query.class_name
        self._inner[name].retire(query)
        self._queries[name] -= 1
        if not self._queries[name]:
            del self._inner[name], self._queries[name]
            self._awake.pop(name, None)
            self.classes_changed()

    def arrived(self, operator: OperatorView, now: int) -> bool:
        """Forward to the inner policy of the operator's class."""
        name = operator.query.class_name
        self._awake.setdefault(name, self._now)
        return self._inner[name].arrived(operator, now)

    def grew(self, operator: OperatorView, now: int) -> None:
        """Forward to the inner policy of the operator's class."""
        self._inner[operator.query.class_name].grew(operator, now)

    def hands_over(self, lower: OperatorView, upper: OperatorView) -> bool:
        """Return what the inner policy of the query's class answers."""
        return self._inner[upper.query.class_name].hands_over(lower, upper)

    def finished(self, slice_: Slice, report: Report) -> None:
        """Forward to the class that the slice came from, or to the one the query has moved to since."""
        first = slice_.operators[0]
        came_from, now_in = self._under_way.pop(first.number, None), first.query.class_name
        if came_from is not None:
            self.charge(came_from, slice_, report)
        if came_from == now_in and came_from in self._inner:
            self._awake.setdefault(came_from, self._now)
            self._inner[came_from].finished(slice_, report)
            return
        for operator in slice_.operators:
            if operator.ready:
                self.arrived(operator, 0)

    @abstractmethod
    def charge(self, class_name: str, slice_: Slice, report: Report) -> None:
        """Account for a slice of a class that has been run."""

    def refreshed(self, query: QueryView) -> None:
        """Forward to the inner policy of the query's class."""
        self._inner[query.class_name].refreshed(query)

    def reprioritised(self) -> None:
        """Forward to all inner policies and apply the new priorities."""
        for inner in self._inner.values():
            inner.reprioritised()
        self.classes_changed()
