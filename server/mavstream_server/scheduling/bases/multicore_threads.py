"""Threads on several cores: a class has one, or two, and each runs on one core at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count

from mavstream_server.scheduling.bases.multicore import CoreUnit, Member, MulticorePolicy
from mavstream_server.scheduling.mechanisms.ranking import Ranking
from mavstream_server.scheduling.policy import OptionsT
from mavstream_server.scheduling.view import Report, View


class Thread:
    """Goes around its units; `used` is the time it has had."""

    __slots__ = ("busy", "line", "number", "units", "used")

    def __init__(self, number: int) -> None:
        self.number = number
        self.units = 0
        self.line: deque[ThreadUnit] = deque()
        self.busy = False
        self.used = 0


class ThreadUnit(CoreUnit):
    """A unit that belongs to a thread."""

    __slots__ = ("class_name", "runs_in", "thread")

    thread: Thread
    runs_in: Thread

    def __init__(self, members: Sequence[Member], class_name: str) -> None:
        super().__init__(members)
        self.class_name = class_name


class ThreadedPolicy(MulticorePolicy[OptionsT, ThreadUnit]):
    """Gives a free core to the thread that has had the least time; how many a class has, subclasses say.

    That stands for the operating system, which the dissertation leaves the choice to: it divides the
    machine evenly among the threads that have something to do. A thread that has slept gets nothing for it.
    """

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        self._threads: dict[tuple[str, int], Thread] = {}
        self._waiting: Ranking[Thread] = Ranking()  # those with units in line and no core
        self._used = 0  # of the thread that was chosen last: no other starts from less
        self._class_sizes: dict[str, int] = {}
        self._split_classes: set[str] = set()
        self._numbers = count()
        self._stale = False  # the classes, or their priorities, are others

    def split_classes(self, classes: Sequence[str]) -> Sequence[str]:
        """Return the classes that have two threads, of those given, the most important first: none."""
        return ()

    def make_unit(self, members: Sequence[Member]) -> ThreadUnit:
        """Return a unit of the most important class among its queries."""
        unit = ThreadUnit(members, "")
        unit.class_name = unit.leading_class(self.view.priorities)
        return unit

    def formed(self, unit: ThreadUnit) -> None:
        """Give the unit to a thread of its class."""
        size = self._class_sizes.get(unit.class_name, 0)
        self._class_sizes[unit.class_name] = size + 1
        self._stale = self._stale or not size
        self._assign(unit)

    def dissolved(self, unit: ThreadUnit) -> None:
        """Take the unit from its thread."""
        unit.thread.units -= 1
        self._class_sizes[unit.class_name] -= 1
        if not self._class_sizes[unit.class_name]:
            del self._class_sizes[unit.class_name]
            self._stale = True

    def enter(self, unit: ThreadUnit) -> None:
        """Put the unit behind the others of its thread."""
        unit.thread.line.append(unit)
        self._queue(unit.thread)

    def pick(self, core: int) -> ThreadUnit | None:
        """Return the next unit of the thread that has had the least time."""
        if self._stale:
            self.reassign()
        while (thread := self._waiting.first()) is not None:
            self._used = thread.used
            while thread.line:
                unit = thread.line.popleft()
                if not unit.gone:
                    unit.in_line = False
                    return unit
            self._waiting.remove(thread)
        return None

    def began(self, unit: ThreadUnit, core: int) -> None:
        """The unit's thread has a core."""
        unit.runs_in = unit.thread
        unit.runs_in.busy = True
        self._waiting.remove(unit.runs_in)

    def ended(self, unit: ThreadUnit, report: Report) -> None:
        """The thread that ran the unit gives its core back."""
        thread = unit.runs_in
        thread.busy = False
        thread.used += report.elapsed
        if thread.line:
            self._queue(thread)

    def reprioritised(self) -> None:
        """Arrange the units by the new order of the classes."""
        self._stale = True

    def reassign(self) -> None:
        """Give all units to threads anew."""
        self._stale = False
        in_line = [unit for thread in self._threads.values() for unit in thread.line if not unit.gone]
        for thread in self._threads.values():
            thread.line.clear()
            thread.units = 0
        self._class_sizes.clear()
        for unit in self._units.values():
            unit.class_name = unit.leading_class(self.view.priorities)
            self._class_sizes[unit.class_name] = self._class_sizes.get(unit.class_name, 0) + 1
        priorities = self.view.priorities
        order = sorted(self._class_sizes, key=lambda name: (-priorities.get(name, 1), name))
        self._split_classes = set(self.split_classes(order))
        for unit in self._units.values():
            self._assign(unit)
        self._threads = {key: one for key, one in self._threads.items() if one.units or one.busy}
        for unit in in_line:
            self.enter(unit)

    def _assign(self, unit: ThreadUnit) -> None:
        parts = 2 if unit.class_name in self._split_classes else 1
        found = [self._thread(unit.class_name, part) for part in range(parts)]
        unit.thread = min(found, key=lambda thread: (thread.units, thread.number))
        unit.thread.units += 1

    def _thread(self, class_name: str, part: int) -> Thread:
        thread = self._threads.get((class_name, part))
        if thread is None:
            thread = self._threads[class_name, part] = Thread(next(self._numbers))
        return thread

    def _queue(self, thread: Thread) -> None:
        if not thread.busy and thread not in self._waiting:
            thread.used = max(thread.used, self._used)
            self._waiting.put(thread, (thread.used, thread.number))
