"""Migration: a running query continues with an equivalent plan, without lost or duplicate answers.

Why no answer is lost or duplicated:

At a quiescent point (see `quiescence`) a query has emitted the answers of its plan for exactly the rows
before its cursors, and no rows are between its operators. Two equivalent plans have emitted the same answers
for these rows; so at a quiescent point of both, one can replace the other: its answers from then on are those
that the other one would have emitted.

Sources and output are the same operators before and after, so cursors, gaps, load shedding, offsets, latency
and counters continue. So do operators that are equal in both plans (see `reuse`). New stateless operators
need no history: if there are no others, the plans are exchanged at once.

New stateful operators lack the rows before the point at which they start. They run in parallel with the old
ones, on the same batches and with their output discarded, until those rows do not matter any more. Let T be
the latest time of any row before that point. Rows up to T belong to windows that begin at T or before, and
to pairs within the interval of a join after T; results of these can be in windows of operators above, and so
on: `frontier.touched` returns, for each operator, the latest time of an answer that they can contribute to.
When the watermark that a new operator has emitted passes this time, all those windows are closed, all those
pairs were emitted, none of them waits to be sorted, and no later row belongs to any of them: it is late for
these windows, and outside the interval of these pairs. So the operator has the state that it would have had
if it had run from the start. As a last check, the roots of both plans must have emitted the same watermark;
this can reveal a plan that is not equivalent.

Migrations for which this does not hold are refused: plans with windows by rows, whose bounds always depend on
where the query began; and one-time queries, whose new operators would lack rows of the window that ends them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.quantities import format_duration
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.core.clock import Clock
from mavstream_server.engine.migration.operator_exchange import OperatorExchange
from mavstream_server.engine.migration.quiescence import Ask, QuiescentPoints
from mavstream_server.engine.migration.reuse import counts_rows
from mavstream_server.engine.query import NEW, MigrationStage, RunningQuery
from mavstream_server.engine.states import IllegalMove, QueryState
from mavstream_server.engine.task import Task
from mavstream_server.operators.operator import Operator
from mavstream_server.planning.instantiator import OperatorMaker, needs_of
from mavstream_server.planning.run_options import RunOptions

MIGRATION_LIMIT = 600_000_000
"""How long new operators may take to build up their state, in microseconds."""


class MigrationRefused(MavstreamError):
    """A running query cannot migrate to a plan; it continues unchanged."""

    code = "swap_refused"


class Migration:
    """A migration in progress."""

    __slots__ = ("ask", "exchange", "limit", "since", "version")

    def __init__(self, exchange: OperatorExchange, version: int, limit: int = 0) -> None:
        self.exchange = exchange
        self.version = version
        self.limit = limit
        self.ask: Ask | None = None
        self.since = 0
        """When new operators began to run in parallel with the old ones (monotonic clock, ns)."""


class Migrations:
    """The migrations of an engine's queries."""

    def __init__(
        self,
        clock: Clock,
        quiescent_points: QuiescentPoints,
        make: Callable[[TypedPlan, RunOptions], OperatorMaker],
        task: Callable[[RunningQuery, Operator], Task],
        rearrange: Callable[[RunningQuery, Callable[[], None]], None],
        completed: Callable[[RunningQuery], None],
    ) -> None:
        """Create the migrations of an engine.

        `make` returns a function that creates operators of a plan, `task` creates the task of an operator.

        `rearrange` applies a change of a query's operators between two slices and updates the policy.

        `completed` is called with each query whose migration has completed or was given up.
        """
        self._monotonic = clock.monotonic
        self._quiescent_points = quiescent_points
        self._make = make
        self._task = task
        self._rearrange = rearrange
        self._completed = completed
        self._in_progress: dict[RunningQuery, Migration] = {}

    def __len__(self) -> int:
        return len(self._in_progress)

    def under_way(self, query: RunningQuery) -> bool:
        """Whether a migration of a query is in progress."""
        return query in self._in_progress

    def check(self, query: RunningQuery, plan: TypedPlan) -> None:
        """Raise MigrationRefused or IllegalMove if a query cannot migrate to a plan."""
        check(query, plan)
        _check_state(OperatorExchange(query, plan))

    def ask(self, query: RunningQuery, plan: TypedPlan, version: int, limit: int) -> None:
        """Begin to migrate a query to a checked plan; no other migration of it may be in progress."""
        if plan == query.request.plan:
            query.migrations.version = version
            self._completed(query)
            return
        migration = self._in_progress[query] = Migration(OperatorExchange(query, plan), version, limit)
        query.migrations.stage, query.migrations.note = MigrationStage.DRAINING, None
        migration.ask = self._quiescent_points.ask([query], partial(self._begin, migration))

    def drop(self, query: RunningQuery, why: str) -> None:
        """Give up a query's migration, if any, between two slices; it continues with its present plan."""
        migration = self._in_progress.pop(query, None)
        if migration is None:
            return
        if migration.ask is not None:
            self._quiescent_points.cancel(migration.ask)
        if migration.exchange.begun:
            migration.exchange.abandon()
            self._rearrange(query, migration.exchange.leave_out)
            self._quiescent_points.wake(query)
        query.migrations.stage, query.migrations.note = None, query.migrations.note or why
        self._completed(query)

    def forget(self, query: RunningQuery) -> None:
        """Remove the migration of a query that has ended."""
        migration = self._in_progress.pop(query, None)
        if migration is not None:
            query.migrations.stage, query.migrations.note = None, "the query has ended"

    def failed(self, query: RunningQuery, operator: str, error: Exception) -> bool:
        """Give up a migration because a new operator failed; returns False if the operator is not new."""
        return operator.startswith(NEW) and self.relieve(query, f"operator {operator!r} failed: {error}")

    def relieve(self, query: RunningQuery, why: str) -> bool:
        """Abandon new operators that run, possibly within a slice; returns whether there were any."""
        migration = self._in_progress.get(query)
        if migration is None or query.migrations.stage is not MigrationStage.WARMING:
            return False
        migration.exchange.abandon()
        query.migrations.stage, query.migrations.note = MigrationStage.LEAVING, why
        if migration.ask is not None:
            self._quiescent_points.cancel(migration.ask)
        migration.ask = self._quiescent_points.ask([query], partial(self.drop, query, why))
        return True

    def _begin(self, migration: Migration) -> None:
        """Create the new operators; if they need no history, complete the migration at once."""
        exchange, query = migration.exchange, migration.exchange.query
        make = self._make(exchange.plan, query.request.options)
        try:
            self._rearrange(query, partial(exchange.begin, make, partial(self._task, query)))
        except Exception as error:
            self.drop(query, f"the new operators could not be made: {error}")
            return
        migration.since, query.migrations.stage = self._monotonic(), MigrationStage.WARMING
        if exchange.reach > migration.limit:
            reach, limit = format_duration(exchange.reach), format_duration(migration.limit)
            self.drop(query, f"its windows and joins reach {reach} ahead, further than the limit of {limit}")
            return
        self._try_to_finish(migration)

    def _try_to_finish(self, migration: Migration) -> None:
        exchange, query = migration.exchange, migration.exchange.query
        if exchange.ahead <= 0:
            if not exchange.agreed:
                self.drop(query, "the new plan has reached another time than the one that runs")
                return
            self._rearrange(query, exchange.finish)
            del self._in_progress[query]
            query.migrations.done(migration.version)
            self._completed(query)
        elif self._overdue(migration):
            limit = format_duration(migration.limit)
            self.drop(query, f"after {limit} its new operators did not know yet what they must")
        else:
            finish, condition = partial(self._try_to_finish, migration), partial(self._may_finish, migration)
            migration.ask = self._quiescent_points.ask([query], finish, condition)

    def _may_finish(self, migration: Migration) -> bool:
        return self._overdue(migration) or (migration.exchange.hopeful and migration.exchange.ahead <= 0)

    def _overdue(self, migration: Migration) -> bool:
        return self._monotonic() - migration.since > migration.limit * 1000


def check(query: RunningQuery, plan: TypedPlan) -> None:
    """Raise MigrationRefused or IllegalMove if a query cannot get a plan, regardless of operator state."""
    running, name = query.request.plan, f"query {query.id!r}"
    if query.state is not QueryState.RUNNING:
        raise IllegalMove(f"{name} is {query.state.value}; its plan can be swapped while it is running")
    if plan.schema != running.schema:
        raise MigrationRefused(
            f"{name} answers {', '.join(running.schema.names)}, the new plan {', '.join(plan.schema.names)}; "
            "give a plan with the same columns and types"
        )
    before, after = ({node.name: node.stream for node in p.sources} for p in (running, plan))
    if before != after or running.tables != plan.tables:
        raise MigrationRefused(
            f"{name} reads {_listed(before, running)}, the new plan {_listed(after, plan)}; "
            "give a plan with the same sources, by name, and the same tables"
        )
    if needs_of(running) != needs_of(plan):
        raise MigrationRefused(
            f"query {query.id!r} and its new plan do not depend on order alike, so they cannot give the same "
            "answer; give a plan with the same kinds of windows and joins"
        )


def _listed(sources: dict[str, str], plan: TypedPlan) -> str:
    return ", ".join([*(f"{stream} as {name}" for name, stream in sources.items()), *sorted(plan.tables)])


def _check_state(exchange: OperatorExchange) -> None:
    anew = ", ".join(repr(node.name) for node in exchange.anew)
    if not anew:
        return
    request = exchange.query.request
    reason = None
    if counts_rows(exchange.plan) or counts_rows(request.plan):
        reason = "the plan has windows by rows, and which rows are in one depends on where the query began"
    elif any(node.endless for plan in (exchange.plan, request.plan) for node in plan.nodes.values()):
        reason = "the plan has session windows, and rows from before the change can be in one without end"
    elif request.options.one_time:
        reason = "it is a one-time query, and the new operators would lack rows of the window that ends it"
    if reason is not None:
        raise MigrationRefused(
            f"query {request.id!r} cannot begin anew with what {anew} remember: {reason}; "
            "give a plan in which these nodes, and what they read, are as they are"
        )
