"""Timetable: events at fixed times, independent of the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mavstream_server.simulation.model.arrivals import NEVER
from mavstream_server.simulation.model.operators import SimulatedOperator
from mavstream_server.simulation.scenario import SECOND, Change

if TYPE_CHECKING:
    from mavstream_server.simulation.run.driver import Driver


class Timetable:
    """Applies changes of priorities, selectivities and costs, and samples the queues."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._changes = sorted(driver.scenario.changes, key=lambda change: change.at, reverse=True)
        self._every = int(driver.scenario.sample_s * SECOND)
        self._next_sample = self._every
        self.samples: list[tuple[int, int, int]] = []
        """(time, waiting tuples, their bytes)"""
        self.priorities = [(0, dict(driver.priorities))]
        """(time, priorities from then on)"""
        self.next = NEVER
        self._go_on()

    def handle(self) -> None:
        """Process the events at the time `next`."""
        now = self._driver.clock.now = self.next
        while self._changes and self._changes[-1].at <= now:
            self._change(self._changes.pop())
        if self._next_sample <= now:
            self.sample_queues(now)
            self._next_sample += self._every
        self._go_on()

    def _go_on(self) -> None:
        self.next = min(self._next_sample, self._changes[-1].at) if self._changes else self._next_sample

    def sample_queues(self, now: int) -> None:
        """Record the lengths of the queues."""
        tuples = size = 0
        for operator in self._driver.network.operators:
            tuples += operator.queued
            size += operator.queued_bytes
        self.samples.append((now, tuples, size))

    def _change(self, change: Change) -> None:
        driver = self._driver
        if change.priorities:
            driver.priorities |= change.priorities
            self.priorities.append((change.at, dict(driver.priorities)))
            driver.policy.reprioritised()
        for (query, name), selectivity in change.selectivities.items():
            self._operator(query, name).change(selectivity=selectivity)
        for (query, name), cost in change.costs.items():
            self._operator(query, name).change(cost=cost)
        for query, name in {*change.selectivities, *change.costs}:
            driver.refresh(self._operator(query, name))

    def _operator(self, query: str, name: str) -> SimulatedOperator:
        tasks = self._driver.network.queries[query].tasks
        return next(task for task in tasks if task.spec.name == name)
