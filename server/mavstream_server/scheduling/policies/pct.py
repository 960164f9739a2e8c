"""Per-class threads: one thread per class."""

from __future__ import annotations

from mavstream_server.scheduling.bases.multicore_threads import ThreadedPolicy
from mavstream_server.scheduling.policy import PolicyOptions
from mavstream_server.scheduling.registry import register


class PerClassThreadOptions(PolicyOptions):
    """`pct` has no options."""


@register
class PerClassThread(ThreadedPolicy[PerClassThreadOptions]):
    """Dissertation, 6.2.1, PCT: a thread per class; with fewer cores than classes, threads compete.

    A thread runs on one core at a time, so cores beyond the number of classes stay idle even while queries
    wait, as the paper intends. Inside a thread, which the text leaves open, queries run in turn. Isolates
    classes, but gives each the same time; a heavy class overloads its thread.
    """

    name = "pct"
    optimises = "isolation of classes, without priorities"
    Options = PerClassThreadOptions
