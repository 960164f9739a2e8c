"""Changes of running queries' plans: to an equivalent one by migration, to any other by replacement."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.core.clock import Clock
from mavstream_server.engine.assembly import Assembly
from mavstream_server.engine.migration.migration import MigrationRefused, Migrations
from mavstream_server.engine.migration.quiescence import QuiescentPoints
from mavstream_server.engine.migration.replacement import Ended, NewPlan, Replacements
from mavstream_server.engine.migration.warm_up import WarmUp
from mavstream_server.engine.policy_host import PolicyHost
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sharing.sharing import QuerySharing
from mavstream_server.engine.sources.intake import Intake
from mavstream_server.planning.instantiator import operator_maker
from mavstream_server.planning.weighting import weighted


class PlanChanges:
    """Migrates queries to other plans and replaces plans; a query's plan changes in one way at a time.

    A query whose plan is about to change shares no operators with others until it has.
    """

    def __init__(
        self,
        clock: Clock,
        intake: Intake,
        policy_host: PolicyHost,
        assembly: Assembly,
        sharing: QuerySharing,
        admit: Callable[[RunningQuery], None],
        replaced: Callable[[RunningQuery], None],
    ) -> None:
        """`admit` starts the warm-up of a new plan; `replaced` is called with each query that has one."""
        self._sharing = sharing
        self._replaced = replaced
        self.quiescent_points = QuiescentPoints(intake)
        self.migrations = Migrations(
            clock,
            self.quiescent_points,
            partial(operator_maker, table=assembly.table),
            assembly.task,
            policy_host.rearrange,
            sharing.add,
        )
        self.replacements = Replacements(
            clock, self.quiescent_points, intake, policy_host, assembly, admit, self._complete
        )

    def __bool__(self) -> bool:
        return bool(self.migrations or self.replacements)

    def migrate(self, query: RunningQuery, plan: TypedPlan, version: int, limit: int) -> None:
        """Migrate a query to an equivalent plan as soon as possible; see `Engine.migrate`."""
        plan = weighted(plan)
        self.migrations.check(query, plan)
        if self.replacements.under_way(query):
            raise MigrationRefused(f"the plan of query {query.id!r} is being replaced; try again later")
        self.migrations.drop(query, "another plan was asked for")
        self._sharing.keep_apart(query)  # until the migration has completed or was given up
        self.migrations.ask(query, plan, version, limit)

    def replace(self, query: RunningQuery, change: NewPlan, version: int, ended: Ended) -> None:
        """Replace a query's plan as soon as possible; see `Engine.replace`."""
        if self.replacements.join(query, version, ended):
            return
        change = change._replace(plan=weighted(change.plan))
        self.replacements.check_query(query, change.plan)
        self.migrations.drop(query, "the plan is replaced")
        self.replacements.drop(query, "another plan was asked for")
        self._sharing.keep_apart(query)  # until the plan was replaced
        try:
            self.replacements.ask(query, change, version, ended)
        except BaseException:
            self.share(query)
            raise

    def share(self, query: RunningQuery) -> None:
        """Let a query share operators again, unless its plan is about to change."""
        if not (self.migrations.under_way(query) or self.replacements.under_way(query)):
            self._sharing.add(query)

    def failed(self, query: RunningQuery, operator: str, error: Exception) -> bool:
        """Give up the change that an operator has failed for, if the query itself goes on without it."""
        if self.migrations.failed(query, operator, error):
            return True
        if isinstance(query, WarmUp):
            self.replacements.warm_up_failed(query, f"the new plan failed on earlier rows: {error}")
            return True
        return False

    def paused(self, query: RunningQuery) -> None:
        """Give up the changes of a query that was paused."""
        self.migrations.drop(query, "the query was paused")
        self.replacements.drop(query, "the query was paused")
        self.quiescent_points.drop(query)

    def resumed(self, query: RunningQuery) -> None:
        """Give up the replacement of a query that was resumed: its plan is to change while it is paused."""
        self.replacements.drop(query, "the query was resumed")

    def forget(self, query: RunningQuery) -> None:
        """Forget the changes of a query that has ended."""
        self.migrations.forget(query)
        self.replacements.forget(query)
        self.quiescent_points.drop(query)

    def _complete(self, query: RunningQuery) -> None:
        self._replaced(query)
        self.share(query)
