"""An engine in the process of the test that obeys the commands of a server, on a clock advanced by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, SchedulerSettings, Sharing
from mavstream_server.columns.batch import Batch
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.process.commands import HostedEngine
from mavstream_server.engine.process.messages import (
    Command,
    Done,
    Failed,
    Hello,
    StartQuery,
    SwitchPolicy,
    Value,
)
from mavstream_server.engine.query import RunningQuery
from mavstream_server.supervisor.commands import EngineCommands
from mavstream_server.supervisor.engine_link import EngineRefused, EngineUnavailable
from mavstream_server.testing.clock import ManualClock


class SteppedEngine(EngineCommands):
    """Takes the commands of a link, and work only when it is stepped.

    Work takes as long as is said: nanoseconds per row, by kind of operator.
    """

    def __init__(
        self,
        data: Path,
        clock: ManualClock,
        scheduler: SchedulerSettings = DEFAULT_SCHEDULER,
        *,
        train: int | None = None,
    ) -> None:
        self.clock = clock
        self.current = scheduler
        """The policy that decides, and its options."""
        self.commands: list[Command] = []
        """What it was told and asked."""
        self.away = False
        """Whether it answers as one that has died."""
        # What is said of a query's operators holds for those that it runs itself: nothing is shared.
        hello = Hello(data, scheduler, train, Sharing.OFF)
        self._hosted = HostedEngine(hello, clock, lambda query: None)

    @property
    def engine(self) -> Engine:
        """The engine itself."""
        return self._hosted.engine

    async def call(self, command: Command) -> Value:
        """Carry out a command."""
        if self.away:
            raise EngineUnavailable("the engine is away, as the script has it")
        self.commands.append(command)
        match self._hosted.obey(command):
            case Done(value):
                return value
            case Failed(code, detail):
                raise EngineRefused(detail, code=code)

    async def choose(self, chosen: SchedulerSettings) -> None:
        """Let another policy decide."""
        await self.call(SwitchPolicy(chosen))
        self.current = chosen

    async def start(self, command: StartQuery, costs: Mapping[str, int]) -> RunningQuery:
        """Run a query whose operators take so long."""
        await self.call(command)
        query = self.engine.queries[command.id]
        script_costs(query, self.clock, costs)
        return query

    def work_until(self, time: int) -> None:
        """Step until the clock has come as far; what takes longer is finished."""
        while self.clock.now() < time:
            if not self.engine.step():
                self.clock.advance(nanoseconds=time - self.clock.now())

    def close(self) -> None:
        """Close the result logs."""
        self._hosted.close()


def script_costs(query: RunningQuery, clock: ManualClock, costs: Mapping[str, int]) -> None:
    """Let time go on by what a query's operators work on: nanoseconds per row, by kind of operator.

    May be called again, for operators that have come since.
    """
    for operator in query.network.operators.values():
        cost = costs.get(operator.kind, 0)
        if cost and "process" not in vars(operator):
            setattr(operator, "process", _taking_time(operator.process, cost, clock))  # noqa: B010


def _taking_time(
    process: Callable[[int, Batch], None], cost: int, clock: ManualClock
) -> Callable[[int, Batch], None]:
    def work(port: int, batch: Batch) -> None:
        clock.advance(nanoseconds=cost * batch.size)
        process(port, batch)

    return work
