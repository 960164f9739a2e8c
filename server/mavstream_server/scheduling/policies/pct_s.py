"""Per-class threads, split: important classes have two threads where there are spare cores."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.scheduling.bases.multicore_threads import ThreadedPolicy, ThreadUnit
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register
from mavstream_server.scheduling.view import View


class PerClassThreadSplitOptions(PolicyOptions):
    """`pct_s` has no options."""


@register
class PerClassThreadSplit(ThreadedPolicy[PerClassThreadSplitOptions]):
    """Dissertation, 6.2.1, PCT_S: like PCT, but as many classes as there are spare cores are split in two.

    The most important classes are split, with their queries halved by number, not by load. The number of
    cores is learned from the cores that ask. Cores beyond two per class stay idle.
    """

    name = "pct_s"
    optimises = "isolation of classes, without priorities, on more cores than classes"
    Options = PerClassThreadSplitOptions

    def __init__(self, view: View, options: PerClassThreadSplitOptions) -> None:
        super().__init__(view, options)
        self._cores = 1

    def split_classes(self, classes: Sequence[str]) -> Sequence[str]:
        """Return as many of the most important classes as there are spare cores."""
        return classes[: max(0, self._cores - len(classes))]

    def pick(self, core: int) -> ThreadUnit | None:
        """Count the core and return the next unit of the thread with the least run time."""
        if core >= self._cores:
            self._cores = core + 1
            self._stale = True
        return super().pick(core)
