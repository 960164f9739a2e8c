"""An in-process engine for tests that executes the server's commands on a manual clock."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, SchedulerSettings, Sharing
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.process.commands import HostedEngine
from mavstream_server.engine.process.messages import (
    Command,
    Done,
    Failed,
    Hello,
    Reply,
    StartQuery,
    SwitchPolicy,
    Value,
)
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.supervisor.commands import EngineCommands
from mavstream_server.supervisor.engine_link import EngineRefused, EngineUnavailable
from mavstream_server.testing.clock import ManualClock
from mavstream_server.testing.costs import take_time


class SteppedEngine(EngineCommands):
    """Executes the commands of an engine link at once, and operators only when stepped.

    Processing takes a scripted time: nanoseconds per row, by kind of operator. Operators of a shared
    pipeline take as long as those of its first member.
    """

    def __init__(
        self,
        data: Path,
        clock: ManualClock,
        scheduler: SchedulerSettings = DEFAULT_SCHEDULER,
        *,
        train: int | None = None,
        sharing: Sharing = Sharing.CLASS,
    ) -> None:
        self.clock = clock
        self.current = scheduler
        """The active policy and its options."""
        self.commands: list[Command] = []
        """All commands that were received."""
        self.away = False
        """Whether it responds as if the engine process had died."""
        self._costs: dict[str, Mapping[str, int]] = {}  # of the operators of queries, by id
        self._hosted = HostedEngine(Hello(data, scheduler, train, sharing), clock, lambda query: None)
        self._start_pipeline = self.engine.start_pipeline
        setattr(self.engine, "start_pipeline", self._start_scripted_pipeline)  # noqa: B010

    @property
    def engine(self) -> Engine:
        """The engine itself."""
        return self._hosted.engine

    async def call(self, command: Command, *, large: bool = False) -> Value:
        """Carry out a command."""
        if self.away:
            raise EngineUnavailable("the engine is away, as the script has it")
        self.commands.append(command)
        replies: list[Reply] = []
        self._hosted.obey(command, replies.append)
        match replies:
            case [Done(value)]:
                return value
            case [Failed(code, detail)]:
                raise EngineRefused(detail, code=code)
            case _:
                raise AssertionError("without checkpoints, every command is replied to at once")

    async def choose(self, chosen: SchedulerSettings) -> None:
        """Let another policy decide."""
        await self.call(SwitchPolicy(chosen))
        self.current = chosen

    async def start(self, command: StartQuery, costs: Mapping[str, int]) -> RunningQuery:
        """Start a query whose operators take the given times, including operators of a later plan."""
        await self.call(command)
        query = self.engine.queries[command.id]
        self._costs[command.id] = costs
        self._script(query)
        return query

    def work_until(self, time: int) -> None:
        """Step until the clock reaches a time; a slice under way is completed."""
        for id_ in self._costs:
            if id_ in self.engine.queries:
                self._script(self.engine.queries[id_])
        while self.clock.now() < time:
            if not self.engine.step():
                self.clock.advance(nanoseconds=time - self.clock.now())

    def _start_scripted_pipeline(self, pipeline: SharedPipeline) -> None:
        self._script(pipeline)
        self._start_pipeline(pipeline)

    def _script(self, query: RunningQuery) -> None:
        """Make the clock advance in operators that were added since the last call."""
        for operator in query.network.operators.values():
            take_time(operator, self.clock, partial(self._cost, query, operator.kind))

    def _cost(self, query: RunningQuery, kind: str) -> int:
        return self._costs.get(query.known_as or "", {}).get(kind, 0)

    def close(self) -> None:
        """Close the result logs."""
        self._hosted.close()
