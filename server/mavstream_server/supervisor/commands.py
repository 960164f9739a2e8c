"""The commands to an engine process that leave nothing behind for the next one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.core.metrics import (
    ClassMetrics,
    ClassMetricsReply,
    EngineMetrics,
    EngineReport,
    QueryMetrics,
    TargetMetrics,
    TargetMetricsReply,
)
from mavstream_server.engine.process.messages import (
    ChangeClass,
    Command,
    ForgetQuery,
    GetClassMetrics,
    GetEngineMetrics,
    GetQueryMetrics,
    GetTableNeed,
    GetTargetMetrics,
    MigratePlan,
    PauseQuery,
    ResumeQuery,
    SetStopTime,
    SetTargets,
    ShedRows,
    StartTrace,
    StopQuery,
    TableNeed,
    TakeTrace,
    Value,
    WeighQuery,
)
from mavstream_server.engine.trace import RecordedSlices

_PAGE = 50  # queries per request for figures: a page holds up the engine's work for some 2 ms
_VITALS_PAGE = 150


class EngineCommands(ABC):
    """What an engine process can be told and asked. All raise what `call` does."""

    @abstractmethod
    async def call(self, command: Command) -> Value:
        """Send any command and return the value of its reply; raises EngineUnavailable, EngineRefused."""

    async def stop_query(self, id_: str) -> None:
        """End a query; its figures stay until it is forgotten."""
        await self.call(StopQuery(id_))

    async def forget_query(self, id_: str) -> None:
        """Drop a query from the engine's books; the files of its result log may be removed afterwards."""
        await self.call(ForgetQuery(id_))

    async def pause_query(self, id_: str) -> None:
        """Detach a query from its streams."""
        await self.call(PauseQuery(id_))

    async def resume_query(self, id_: str) -> None:
        """Let a paused query go on with the next rows."""
        await self.call(ResumeQuery(id_))

    async def reclass(self, id_: str, class_name: str) -> None:
        """Move a query to another class."""
        await self.call(ChangeClass(id_, class_name))

    async def set_stop_time(self, id_: str, stop_at: int | None) -> None:
        """Let a query end at another arrival time (us), or not by time; refused with `stop_at_passed`."""
        await self.call(SetStopTime(id_, stop_at))

    async def set_targets(
        self, id_: str, latency_target_us: int | None, worth: Mapping[str, Expression]
    ) -> None:
        """Let a query have another latency target, and rows another worth where load is shed."""
        await self.call(SetTargets(id_, latency_target_us, worth))

    async def weigh_query(self, id_: str, weight: int) -> None:
        """Give a query more of its class."""
        await self.call(WeighQuery(id_, weight))

    async def shed_rows(self, id_: str, share: float) -> None:
        """Leave out a share of the rows that a query reads."""
        await self.call(ShedRows(id_, share))

    async def vitals(self, ids: Iterable[str]) -> dict[str, TargetMetrics]:
        """Return what is watched of queries; those that do not run are left out."""
        wanted, found = tuple(ids), dict[str, TargetMetrics]()
        for start in range(0, len(wanted), _VITALS_PAGE):
            page = await self.call(GetTargetMetrics(wanted[start : start + _VITALS_PAGE]))
            assert isinstance(page, TargetMetricsReply)
            found |= page.queries
        return found

    async def swap_plan(self, id_: str, plan: TypedPlan, version: int) -> None:
        """Begin to let a running query go on with another plan; figures tell when it does, by the version."""
        await self.call(MigratePlan(id_, plan, version))

    async def start_trace(self, most: int) -> None:
        """Record slices from now on, up to a number; `take_trace` must follow, whatever happens."""
        await self.call(StartTrace(most))

    async def take_trace(self) -> RecordedSlices:
        """Stop recording and return what was recorded: nothing by a process that was started since."""
        recorded = await self.call(TakeTrace())
        assert isinstance(recorded, RecordedSlices)
        return recorded

    async def classes(self) -> dict[str, ClassMetrics]:
        """Return the figures of the classes that have queries."""
        figures = await self.call(GetClassMetrics())
        assert isinstance(figures, ClassMetricsReply)
        return figures.classes

    async def table_need(self, table: str) -> int | None:
        """Return the lowest arrival of the rows that were read and are still to join a table, or None."""
        need = await self.call(GetTableNeed(table))
        assert isinstance(need, TableNeed)
        return need.arrival

    async def totals(self) -> EngineMetrics:
        """Return the engine's own figures."""
        totals = await self.call(GetEngineMetrics())
        assert isinstance(totals, EngineMetrics)
        return totals

    async def stats(self, ids: Iterable[str] | None = None) -> EngineReport:
        """Return the figures of the engine and of these queries, or of all."""
        totals = await self.totals()
        wanted = totals.ids if ids is None else tuple(ids)
        queries: dict[str, QueryMetrics] = {}
        for start in range(0, len(wanted), _PAGE):
            page = await self.call(GetQueryMetrics(wanted[start : start + _PAGE]))
            assert isinstance(page, dict)
            queries |= page
        return EngineReport(totals, queries)
