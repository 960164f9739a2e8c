"""Base of policies with one or two threads per class; each thread runs on one core at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count

from mavstream_server.scheduling.bases.multicore import CoreUnit, Member, MulticorePolicy
from mavstream_server.scheduling.mechanisms.ranking import Ranking
from mavstream_server.scheduling.policy import OptionsT
from mavstream_server.scheduling.view import Report, View


class Thread:
    """Runs its units in turn; `used` is its accumulated run time in nanoseconds."""

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
    """Gives a free core to the thread with the least run time; subclasses choose the threads per class.

    This models the operating system's scheduler, to which the dissertation leaves the choice: it divides
    the machine evenly among runnable threads. A thread gets no credit for the time it slept.
    """

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        self._threads: dict[tuple[str, int], Thread] = {}
        self._waiting: Ranking[Thread] = Ranking()  # threads with ready units and no core
        self._used = 0  # run time of the thread chosen last: no other starts from less
        self._class_sizes: dict[str, int] = {}
        self._split_classes: set[str] = set()
        self._numbers = count()
        self._stale = False  # classes or their priorities have changed

    def split_classes(self, classes: Sequence[str]) -> Sequence[str]:
        """Return the classes with two threads, given all classes by descending priority: by default none."""
        return ()

    def make_unit(self, members: Sequence[Member]) -> ThreadUnit:
        """Return a unit of the highest-priority class among its queries."""
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
        """Remove the unit from its thread."""
        unit.thread.units -= 1
        self._class_sizes[unit.class_name] -= 1
        if not self._class_sizes[unit.class_name]:
            del self._class_sizes[unit.class_name]
            self._stale = True

    def enter(self, unit: ThreadUnit) -> None:
        """Append the unit to the queue of its thread."""
        unit.thread.line.append(unit)
        self._queue(unit.thread)

    def pick(self, core: int) -> ThreadUnit | None:
        """Return the next unit of the thread with the least run time."""
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
        """Mark the unit's thread as running on a core."""
        unit.runs_in = unit.thread
        unit.runs_in.busy = True
        self._waiting.remove(unit.runs_in)

    def ended(self, unit: ThreadUnit, report: Report) -> None:
        """Release the core of the thread that ran the unit."""
        thread = unit.runs_in
        thread.busy = False
        thread.used += report.elapsed
        if thread.line:
            self._queue(thread)

    def reprioritised(self) -> None:
        """Reassign units to threads before the next decision."""
        self._stale = True

    def reassign(self) -> None:
        """Assign all units to threads again."""
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
