"""Commands to an engine process that need not be repeated after a restart."""

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
    PlanReplaced,
    ReplacePlan,
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
from mavstream_server.engine.slices.trace import RecordedSlices

_PAGE = 50  # queries per request for metrics: a page delays the engine's work by some 2 ms
_TARGETS_PAGE = 150


class EngineCommands(ABC):
    """Commands and requests to an engine process; every method raises what `call` does."""

    @abstractmethod
    async def call(self, command: Command, *, large: bool = False) -> Value:
        """Send any command and return the value of its reply; raises EngineUnavailable, EngineRefused.

        A large command is encoded in a thread; others may overtake it.
        """

    async def stop_query(self, id_: str) -> None:
        """Stop a query; its metrics stay available until it is forgotten."""
        await self.call(StopQuery(id_))

    async def forget_query(self, id_: str) -> None:
        """Remove a query from the engine; the files of its result log may be removed afterwards."""
        await self.call(ForgetQuery(id_))

    async def pause_query(self, id_: str) -> None:
        """Detach a query from its streams."""
        await self.call(PauseQuery(id_))

    async def resume_query(self, id_: str, positions: Mapping[str, int] | None = None) -> None:
        """Let a paused query continue at these positions of its streams; None for the next rows."""
        await self.call(ResumeQuery(id_, positions))

    async def reclass(self, id_: str, class_name: str) -> None:
        """Move a query to another class."""
        await self.call(ChangeClass(id_, class_name))

    async def set_stop_time(self, id_: str, stop_at: int | None) -> None:
        """Let a query end at another arrival time (us), or not by time; refused with `stop_at_passed`."""
        await self.call(SetStopTime(id_, stop_at))

    async def set_targets(
        self, id_: str, latency_target_us: int | None, utility: Mapping[str, Expression]
    ) -> None:
        """Set a query's latency target, and the utility of its rows by stream for load shedding."""
        await self.call(SetTargets(id_, latency_target_us, utility))

    async def weigh_query(self, id_: str, weight: int) -> None:
        """Set the weight of a query within its class."""
        await self.call(WeighQuery(id_, weight))

    async def shed_rows(self, id_: str, share: float) -> None:
        """Drop a share (0 to 1) of the rows that a query reads."""
        await self.call(ShedRows(id_, share))

    async def target_metrics(self, ids: Iterable[str]) -> dict[str, TargetMetrics]:
        """Return the metrics that QoS targets are checked against, of queries that run.

        Those that still compute stored results again after a recovery are omitted, too.
        """
        wanted, found = tuple(ids), dict[str, TargetMetrics]()
        for start in range(0, len(wanted), _TARGETS_PAGE):
            page = await self.call(GetTargetMetrics(wanted[start : start + _TARGETS_PAGE]))
            assert isinstance(page, TargetMetricsReply)
            found |= page.queries
        return found

    async def migrate_plan(
        self, id_: str, plan: TypedPlan, version: int, plan_json: str | None = None
    ) -> None:
        """Start the migration of a query to another plan; its metrics report the version when it is done.

        `plan_json` is stored in checkpoints; None for the registered plan.
        """
        await self.call(MigratePlan(id_, plan, version, plan_json), large=True)

    async def replace_plan(self, command: ReplacePlan) -> PlanReplaced | None:
        """Replace the plan of a running query; returns the seam when a checkpoint has it.

        Raises EngineRefused, and then the query keeps its plan; EngineUnavailable if the outcome is unknown.
        """
        value = await self.call(command, large=True)
        assert value is None or isinstance(value, PlanReplaced)
        return value

    async def start_trace(self, most: int) -> None:
        """Start to record slices, up to `most`; `take_trace` must be called in any case afterwards."""
        await self.call(StartTrace(most))

    async def take_trace(self) -> RecordedSlices:
        """Stop recording and return the slices; empty if the process was restarted meanwhile."""
        recorded = await self.call(TakeTrace())
        assert isinstance(recorded, RecordedSlices)
        return recorded

    async def class_metrics(self) -> dict[str, ClassMetrics]:
        """Return the metrics of the classes that have queries."""
        reply = await self.call(GetClassMetrics())
        assert isinstance(reply, ClassMetricsReply)
        return reply.classes

    async def table_need(self, table: str) -> TableNeed:
        """Return what queries have read or will read that is still to join a table."""
        need = await self.call(GetTableNeed(table))
        assert isinstance(need, TableNeed)
        return need

    async def engine_metrics(self) -> EngineMetrics:
        """Return the metrics of the engine itself."""
        engine = await self.call(GetEngineMetrics())
        assert isinstance(engine, EngineMetrics)
        return engine

    async def metrics(self, ids: Iterable[str] | None = None) -> EngineReport:
        """Return the metrics of the engine and of these queries, by default of all."""
        engine = await self.engine_metrics()
        wanted = engine.ids if ids is None else tuple(ids)
        queries: dict[str, QueryMetrics] = {}
        for start in range(0, len(wanted), _PAGE):
            page = await self.call(GetQueryMetrics(wanted[start : start + _PAGE]))
            assert isinstance(page, dict)
            queries |= page
        return EngineReport(engine, queries)
