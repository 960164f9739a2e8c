"""Scripted costs of operators on a manual clock."""

from __future__ import annotations

from collections.abc import Callable

from mavstream_server.columns.batch import Batch
from mavstream_server.operators.operator import Operator
from mavstream_server.testing.clock import ManualClock


def take_time(operator: Operator, clock: ManualClock, cost: Callable[[], int]) -> None:
    """Make the clock advance by `cost()` nanoseconds per row whenever an operator processes a batch.

    Does nothing for an operator that already takes time.
    """
    if "process" in vars(operator):
        return
    process = operator.process

    def work(port: int, batch: Batch) -> None:
        clock.advance(nanoseconds=cost() * batch.size)
        process(port, batch)

    setattr(operator, "process", work)  # noqa: B010
