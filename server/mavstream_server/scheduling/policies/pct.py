"""Per-class threads: every class has a thread of its own."""

from __future__ import annotations

from mavstream_server.scheduling.bases.multicore_threads import ThreadedPolicy
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register


class PerClassThreadOptions(PolicyOptions):
    """There is nothing to choose."""


@register
class PerClassThread(ThreadedPolicy[PerClassThreadOptions]):
    """Dissertation, 6.2.1, PCT: a thread per class; with fewer cores than classes, they compete for them.

    A thread is on one core at a time, so that cores beyond the number of classes stay idle even while
    queries wait: the paper wants it so. Inside a thread, which the text leaves open, queries take turns.
    Isolates classes, but gives each the same; a heavy class overloads its thread.
    """

    name = "pct"
    optimises = "isolation of classes, without priorities"
    Options = PerClassThreadOptions
