"""Swapping: a running query goes on with another plan that gives the same answer, and nobody notices.

Why nothing is lost and nothing is told twice:

At a still point (see `still_point`) a query has answered what its plan gives for the rows ahead of its
cursors, and nothing else is under way. Two plans that give the same answer for every stream give the same for
those rows; so at a still point that both have reached, one can take the other's place: what it answers
from then on is what the other one would have.

Sources and output are the same operators before and after: cursors, gaps, what is shed, offsets, latency
and counters go on. So do operators that are the same in both plans (see `sameness`). New operators without
memory know all that there is to know, and the plans are exchanged at once.

New operators with memory lack the rows ahead of the point at which they begin. They run beside the old
ones, on the same batches, and nobody reads what they give, until those rows do not matter any more. Let T
be the latest time of any row ahead of that point. Rows up to T are part of windows that begin at T or
before, and of pairs not further behind T than a join reaches; what is made of these may be in windows of
operators above, and so on up: `told.touched` gives, for each operator, the latest time of an answer that
they can have part in. When time above a new operator has passed that (the watermark that it has handed
on), all those windows are closed, all those pairs were made, nothing of them waits to be put in order, and
a row to come belongs to none of them: it is late for these windows, and too far from these rows. So the
operator holds what it would hold had it been there from the start. As a last check the roots of both plans
must have told the same of time; a plan that gives another answer may be found out by that.

What is refused, since this does not hold: windows by rows, which never forget where they began; and one-time
queries, whose new operators would lack rows of the window that ends them.
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
from mavstream_server.planning.instantiator import OperatorMaker, RunOptions, needs_of

MIGRATION_LIMIT = 600_000_000
"""Microseconds that new operators may take to get to know what they must."""


class MigrationRefused(MavstreamError):
    """A plan that cannot take a running query's place; the query goes on as it is."""

    code = "swap_refused"


class Migration:
    """A swap under way."""

    __slots__ = ("ask", "exchange", "limit", "since", "version")

    def __init__(self, exchange: OperatorExchange, version: int, limit: int) -> None:
        self.exchange = exchange
        self.version = version
        self.limit = limit
        self.ask: Ask | None = None
        self.since = 0
        """When new operators began to run beside the old ones, on the monotonic clock."""


class Migrations:
    """The swaps of an engine."""

    def __init__(
        self,
        clock: Clock,
        still_points: QuiescentPoints,
        make: Callable[[TypedPlan, RunOptions], OperatorMaker],
        task: Callable[[RunningQuery, Operator], Task],
        rearrange: Callable[[RunningQuery, Callable[[], None]], None],
        over: Callable[[RunningQuery], None],
    ) -> None:
        """`make` and `task` give what a query is made of.

        `rearrange` does something between two slices that changes the operators which the policy knows.

        `over` is told of a query that goes on, with the new plan or without.
        """
        self._monotonic = clock.monotonic
        self._still_points = still_points
        self._make = make
        self._task = task
        self._rearrange = rearrange
        self._over = over
        self._under_way: dict[RunningQuery, Migration] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def under_way(self, query: RunningQuery) -> bool:
        """Whether a query's plan is being swapped."""
        return query in self._under_way

    def check(self, query: RunningQuery, plan: TypedPlan) -> None:
        """Raise MigrationRefused or IllegalMove if a plan cannot take the place of a query's."""
        check(query, plan)
        _check_memory(OperatorExchange(query, plan))

    def ask(self, query: RunningQuery, plan: TypedPlan, version: int, limit: int) -> None:
        """Begin to swap a query's plan for one that was checked; no other swap of it may be under way."""
        if plan == query.request.plan:
            query.swaps.version = version
            self._over(query)
            return
        swap = self._under_way[query] = Migration(OperatorExchange(query, plan), version, limit)
        query.swaps.stage, query.swaps.note = MigrationStage.DRAINING, None
        swap.ask = self._still_points.ask([query], partial(self._begin, swap))

    def drop(self, query: RunningQuery, why: str) -> None:
        """Give up what is under way, between two slices; the query goes on with the plan that it has."""
        swap = self._under_way.pop(query, None)
        if swap is None:
            return
        if swap.ask is not None:
            self._still_points.cancel(swap.ask)
        if swap.exchange.begun:
            swap.exchange.abandon()
            self._rearrange(query, swap.exchange.leave_out)
            self._still_points.wake(query)
        query.swaps.stage, query.swaps.note = None, query.swaps.note or why
        self._over(query)

    def forget(self, query: RunningQuery) -> None:
        """The query has ended, with all its operators."""
        if self._under_way.pop(query, None) is not None:
            query.swaps.stage, query.swaps.note = None, "the query has ended"

    def failed(self, query: RunningQuery, operator: str, error: Exception) -> bool:
        """Give up because of a new operator; returns False if it is none, so that the query must fail."""
        return operator.startswith(NEW) and self.relieve(query, f"operator {operator!r} failed: {error}")

    def relieve(self, query: RunningQuery, why: str) -> bool:
        """Give up new operators that run, be it within a slice; returns whether there were any."""
        swap = self._under_way.get(query)
        if swap is None or query.swaps.stage is not MigrationStage.WARMING:
            return False
        swap.exchange.abandon()
        query.swaps.stage, query.swaps.note = MigrationStage.LEAVING, why
        if swap.ask is not None:
            self._still_points.cancel(swap.ask)
        swap.ask = self._still_points.ask([query], partial(self.drop, query, why))
        return True

    def _begin(self, swap: Migration) -> None:
        """Make the new operators; where they know all that they must, exchange them at once."""
        exchange, query = swap.exchange, swap.exchange.query
        make = self._make(exchange.plan, query.request.options)
        try:
            self._rearrange(query, partial(exchange.begin, make, partial(self._task, query)))
        except Exception as error:
            self.drop(query, f"the new operators could not be made: {error}")
            return
        swap.since, query.swaps.stage = self._monotonic(), MigrationStage.WARMING
        if exchange.reach > swap.limit:
            reach, limit = format_duration(exchange.reach), format_duration(swap.limit)
            self.drop(query, f"its windows and joins reach {reach} ahead, further than the limit of {limit}")
            return
        self._try_to_finish(swap)

    def _try_to_finish(self, swap: Migration) -> None:
        exchange, query = swap.exchange, swap.exchange.query
        if exchange.ahead <= 0:
            if not exchange.agreed:
                self.drop(query, "the new plan came to another time than the one that runs")
                return
            self._rearrange(query, exchange.finish)
            del self._under_way[query]
            query.swaps.done(swap.version)
            self._over(query)
        elif self._overdue(swap):
            limit = format_duration(swap.limit)
            self.drop(query, f"after {limit} its new operators did not know yet what they must")
        else:
            work, when = partial(self._try_to_finish, swap), partial(self._worth_a_try, swap)
            swap.ask = self._still_points.ask([query], work, when)

    def _worth_a_try(self, swap: Migration) -> bool:
        return self._overdue(swap) or (swap.exchange.hopeful and swap.exchange.ahead <= 0)

    def _overdue(self, swap: Migration) -> bool:
        return self._monotonic() - swap.since > swap.limit * 1000


def check(query: RunningQuery, plan: TypedPlan) -> None:
    """Raise what stands against giving a query a plan, whatever it holds."""
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
            f"{name} and its new plan do not depend on time and order alike, so they cannot give the same "
            "answer; give a plan with the same kinds of windows and joins"
        )


def _listed(sources: dict[str, str], plan: TypedPlan) -> str:
    return ", ".join([*(f"{stream} as {name}" for name, stream in sources.items()), *sorted(plan.tables)])


def _check_memory(exchange: OperatorExchange) -> None:
    anew = ", ".join(repr(node.name) for node in exchange.anew)
    if not anew:
        return
    request = exchange.query.request
    reason = None
    if counts_rows(exchange.plan) or counts_rows(request.plan):
        reason = "the plan has windows by rows, and which rows are in one depends on where the query began"
    elif request.options.one_time:
        reason = "it is a one-time query, and the new operators would lack rows of the window that ends it"
    if reason is not None:
        raise MigrationRefused(
            f"query {request.id!r} cannot begin anew with what {anew} remember: {reason}; "
            "give a plan in which these nodes, and what they read, are as they are"
        )
