"""Replacement: a running query continues with any other plan, without a gap.

At a quiescent point (see `quiescence`) the old plan has answered for exactly the rows before its cursors.
This is the seam: the new plan answers for the rows behind it, at the same positions; of a stream that the old
plan did not read, for those that arrive later. No row is answered for by both, and none by neither.

Sources and stateful operators that are the same in both plans stay, with their state (see `reuse`). Other
windows and joins may need rows from before the seam. A warm-up (see `warm_up`) reads those again while the
old plan goes on; when it has nearly caught up, the sources of the query are held, the warm-up reads up to the
seam, and the query gets its operators. So what the query answers from then on is what the new plan would
answer from then on if it had always run. Where rows are not retained any more, windows that they could be in
are not answered. Windows by rows and sessions begin at the seam. A paused query stays paused: the seam is
where it was paused, and the new plan goes on from where the query is resumed.

Until then nothing has changed: if anything goes wrong, the query keeps its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.queries import OnError
from mavstream_protocol.typed_plan import TypedNode, TypedPlan, TypedSource
from mavstream_server.columns.batch import END_OF_TIME
from mavstream_server.core.clock import Clock
from mavstream_server.engine.assembly import Assembly
from mavstream_server.engine.errors import UnknownObject
from mavstream_server.engine.migration.handover import Handover, source_on, unread_without
from mavstream_server.engine.migration.quiescence import Ask, QuiescentPoints
from mavstream_server.engine.migration.reuse import kept_nodes
from mavstream_server.engine.migration.warm_up import (
    Lacking,
    WarmUp,
    WarmUpStart,
    beginning,
    fresh_nodes,
    sources_below,
    warmed_nodes,
)
from mavstream_server.engine.policy_host import PolicyHost
from mavstream_server.engine.query import NEW, MigrationStage, RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sinks import CountingSink
from mavstream_server.engine.sources.intake import Intake
from mavstream_server.engine.states import IllegalMove, QueryState
from mavstream_server.log.reader import LogReader
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.source import Source
from mavstream_server.planning.instantiator import operator_maker

_CLOSE = 50_000
"""Rows behind the old plan at which the sources of the query are held until the warm-up has caught up."""
_ROUNDS = 20
"""How often a warm-up may get close to a position before the query is held however far it has gone on."""
_HELD_FOR = 30_000_000_000
"""ns that a query may be held."""
_WARMS_FOR = 600_000_000_000
"""ns that a warm-up may take."""


class ReplacementRefused(MavstreamError):
    """A running query cannot get a plan; it continues unchanged."""

    code = "replace_refused"


class Replaced(NamedTuple):
    """A query has another plan."""

    offset: int
    """The offset of the first answer of the new plan."""
    lacking: Mapping[str, Lacking]
    """The streams of which rows before the seam are needed and not retained."""


Ended = Callable[[Replaced | str], None]
"""Called at the end of a replacement, with the reason if it was given up."""


class NewPlan(NamedTuple):
    """What a query is to have instead of what it has."""

    plan: TypedPlan
    on_error: OnError = OnError.NULL
    memory_limit: int | None = None
    utility: Mapping[str, Expression] = {}

    def of(self, request: QueryRequest) -> QueryRequest:
        """Return a changed request."""
        options = replace(request.options, on_error=self.on_error, utility=self.utility)
        return replace(request, plan=self.plan, memory_limit=self.memory_limit, options=options)


@dataclass(slots=True, eq=False)
class _Replacement:
    """A replacement in progress."""

    query: RunningQuery
    change: NewPlan
    version: int
    ended: Ended
    kept: frozenset[str]
    fresh: frozenset[str]
    warmed: frozenset[str]
    read_again: frozenset[str]
    """The sources of the warm-up that read rows from before the seam."""
    warm: WarmUp
    lacking: Mapping[str, Lacking]
    since: int
    """When it began (monotonic clock, ns)."""
    held_since: int | None = None
    rounds: int = 0
    running: bool = False
    """Whether policies know the warm-up."""
    followed: set[str] = field(default_factory=set)
    ask: Ask | None = None


class Replacements:
    """The replacements of plans of an engine's queries."""

    def __init__(
        self,
        clock: Clock,
        quiescent_points: QuiescentPoints,
        intake: Intake,
        policy_host: PolicyHost,
        assembly: Assembly,
        admit: Callable[[RunningQuery], None],
        completed: Callable[[RunningQuery], None],
    ) -> None:
        """`admit` lets policies and the intake run a query.

        `completed` is called with each query whose replacement has completed or was given up.
        """
        self._monotonic = clock.monotonic
        self._now = clock.now
        self._quiescent_points = quiescent_points
        self._intake = intake
        self._policy_host = policy_host
        self._assembly = assembly
        self._admit = admit
        self._completed = completed
        self._in_progress: dict[RunningQuery, _Replacement] = {}

    def __len__(self) -> int:
        return len(self._in_progress)

    def under_way(self, query: RunningQuery) -> bool:
        """Whether a replacement of a query's plan is in progress."""
        return query in self._in_progress

    def check_query(self, query: RunningQuery, plan: TypedPlan) -> None:
        """Raise IllegalMove, ReplacementRefused or UnknownObject if a query cannot get a plan."""
        if not query.active:
            raise IllegalMove(
                f"query {query.id!r} is {query.state.value}; its plan cannot be replaced any more"
            )
        if query.request.options.one_time:
            raise ReplacementRefused(f"query {query.id!r} is a one-time query, which answers one window")
        for node in plan.sources:
            if node.stream not in self._intake.feeds:
                raise UnknownObject(f"stream {node.stream!r} is not attached to this engine; attach it first")

    def join(self, query: RunningQuery, version: int, ended: Ended) -> bool:
        """Have `ended` called at the end of a replacement by this version; False if there is none."""
        replacement = self._in_progress.get(query)
        if replacement is None or replacement.version != version:
            return False
        replacement.ended = ended
        return True

    def ask(self, query: RunningQuery, change: NewPlan, version: int, ended: Ended) -> None:
        """Replace the plan of a query that shares no operators; `ended` is called when that is done."""
        plan, request = change.plan, change.of(query.request)
        kept = kept_nodes(query.request.plan, plan, one_time=False)
        if request.options.on_error is not query.request.options.on_error:
            kept = frozenset(source.name for source in plan.sources) & kept
        fresh = fresh_nodes(plan, kept)
        warmed = warmed_nodes(plan, kept, fresh)
        read_again = sources_below(plan, warmed)
        begins = self._beginning(query, plan, read_again, warmed)
        warm = self._assembly.made(_warming(query, request, begins), CountingSink(), WarmUp)
        warm.replaced = query
        replacement = self._in_progress[query] = _Replacement(
            query,
            change,
            version,
            ended,
            kept,
            fresh,
            frozenset(node.name for node in warmed),
            read_again,
            warm,
            begins.lacking,
            self._monotonic(),
        )
        query.migrations.stage, query.migrations.note = MigrationStage.DRAINING, None
        if read_again:
            query.migrations.stage = MigrationStage.WARMING
            self._aim(replacement)
            self._admit(warm)
            replacement.running = True
        replacement.ask = self._quiescent_points.ask(
            [query], partial(self._try, replacement), partial(self._close, replacement)
        )

    def check(self, now: int) -> None:
        """Give up what takes too long; `now` is monotonic. Cheap to call often."""
        for query, replacement in tuple(self._in_progress.items()):
            held = replacement.held_since
            if held is not None and now - held > _HELD_FOR:
                self.drop(query, f"it was held for {_HELD_FOR // 1_000_000_000} s; try again")
            elif now - replacement.since > _WARMS_FOR:
                self.drop(query, f"earlier rows were read again for {_WARMS_FOR // 1_000_000_000} s")

    def drop(self, query: RunningQuery, why: str) -> None:
        """Give up the replacement of a query's plan, if any, between two slices."""
        replacement = self._in_progress.pop(query, None)
        if replacement is None:
            return
        if replacement.ask is not None:
            self._quiescent_points.cancel(replacement.ask)
        self._end(replacement)
        query.migrations.stage, query.migrations.note = None, why
        replacement.ended(why)
        if query.active:
            self._completed(query)

    def warm_up_failed(self, warm: WarmUp, why: str) -> None:
        """Give up a replacement because the new plan has failed on earlier rows."""
        replacement = self._in_progress.get(warm.replaced)
        if replacement is None or replacement.warm is not warm:
            return
        self._end(replacement)
        # Not within a slice: the query may be in the middle of one.
        if replacement.ask is not None:
            self._quiescent_points.cancel(replacement.ask)
        replacement.ask = self._quiescent_points.ask([warm.replaced], partial(self.drop, warm.replaced, why))

    def forget(self, query: RunningQuery) -> None:
        """Remove the replacement of a query that has ended."""
        replacement = self._in_progress.pop(query, None)
        if replacement is not None:
            self._end(replacement)
            query.migrations.stage, query.migrations.note = None, "the query has ended"
            replacement.ended(query.migrations.note)

    # Before the seam

    def _beginning(
        self, query: RunningQuery, plan: TypedPlan, read_again: frozenset[str], warmed: list[TypedNode]
    ) -> WarmUpStart:
        """Return where the warm-up has to begin."""
        readers: dict[str, LogReader] = {}
        marks: list[int] = []
        for node in plan.sources:
            if node.name in read_again:
                reader = readers[node.stream] = self._intake.feeds[node.stream].reader
                source = source_on(query, node)
                marks.append(reader.watermark if source is None else source.frontier.watermark)
        found = beginning(plan, warmed, readers, min(marks, default=END_OF_TIME))
        for node in plan.sources:
            if node.name in read_again:
                found.positions[node.stream] = min(found.positions[node.stream], self._seam(query, node))
        return found

    def _seam(self, query: RunningQuery, node: TypedSource) -> int:
        """Return the position at which the old plan would end now."""
        source = source_on(query, node)
        return self._intake.feeds[node.stream].reader.end if source is None else source.cursor.position

    def _aim(self, replacement: _Replacement) -> int:
        """Let the warm-up read up to where the old plan is now; return the number of rows up to there."""
        query, warm = replacement.query, replacement.warm
        nodes = [node for node in replacement.change.plan.sources if node.name in replacement.read_again]
        rows = warm.stop_before({node.name: self._seam(query, node) for node in nodes})
        if rows and replacement.running:
            self._intake.unblock(warm, self._now())
        return rows

    def _close(self, replacement: _Replacement) -> bool:
        """Whether the query may be held: the warm-up has little left to read."""
        if not replacement.running:
            return True
        if not replacement.warm.idle:
            return False
        replacement.rounds += 1
        return self._aim(replacement) <= _CLOSE or replacement.rounds >= _ROUNDS

    def _try(self, replacement: _Replacement) -> None:
        """Hand over if the warm-up has reached the seam; the query is quiescent, and held until it has."""
        query, plan = replacement.query, replacement.change.plan
        if replacement.held_since is None:
            replacement.held_since = self._monotonic()
            if all(old is not None and old.ended for old in (source_on(query, n) for n in plan.sources)):
                self.drop(query, "the streams that the new plan reads have ended")
                return
        if replacement.running and self._behind(replacement):
            replacement.ask = self._quiescent_points.ask([query], partial(self._try, replacement))
            return
        unread = unread_without(query, plan)
        if unread is not None:
            self.drop(query, f"it has yet to read results of {unread!r} that lack columns; try again soon")
            return
        request = replacement.change.of(query.request)
        make = operator_maker(plan, request.options, self._assembly.table)
        try:
            made = {name: make(plan.nodes[name]) for name in replacement.fresh}
            query.output.change(plan.schema)
        except Exception as error:
            self.drop(query, f"the new plan could not be prepared: {error}")
            return
        self._hand_over(replacement, request, made)

    def _behind(self, replacement: _Replacement) -> bool:
        """Whether the warm-up has to process rows, or marks that the old plan has read behind them."""
        if self._aim(replacement) or not replacement.warm.idle:
            return True
        for node in replacement.change.plan.sources:
            old = source_on(replacement.query, node)
            if node.name in replacement.read_again - replacement.followed and old is not None:
                replacement.followed.add(node.name)
                replacement.warm.follow(node.name, old)
        return not replacement.warm.idle

    # At the seam

    def _hand_over(
        self, replacement: _Replacement, request: QueryRequest, made: Mapping[str, Operator]
    ) -> None:
        query, plan, warm = replacement.query, replacement.change.plan, replacement.warm
        self._part(replacement)
        for node in plan.sources:
            if node.name not in replacement.kept:
                self._place(query, node, warm.sources[node.name].work, node.name in replacement.read_again)
        handover = Handover(
            query,
            warm,
            request,
            replacement.kept,
            replacement.warmed,
            made,
            self._assembly.task,
            self._assembly.source,
        )
        self._policy_host.rearrange(query, handover.apply)
        handover.announce_gaps()
        if (
            query.state is QueryState.RUNNING
        ):  # a paused one reads nothing; it adds its sources when it resumes
            for task in handover.left:
                self._intake.withdraw(task)
            for stream, task in handover.added:
                self._intake.add(stream, task)
        for operator in warm.network.operators.values():
            if operator is not query.network.operators.get(operator.name):
                operator.abandon()
        del self._in_progress[query]
        query.migrations.version, query.migrations.stage = replacement.version, None
        # Recorded before the query may share operators again, in the state that it has now.
        replacement.ended(Replaced(query.output.sink.offset, replacement.lacking))
        self._completed(query)

    def _place(self, query: RunningQuery, node: TypedSource, source: Source, has_read: bool) -> None:
        """Put a new source where the old plan has ended."""
        old = source_on(query, node)
        if old is not None:
            source.load(old.save())
        elif not has_read:
            source.cursor.seek(self._intake.feeds[node.stream].reader.end)
        source.until = None
        source.stop_at(query.request.options.stop_at)  # it may have changed meanwhile
        source.rows_out = source.bytes_out = 0

    def _part(self, replacement: _Replacement) -> None:
        """Let policies and the intake forget the warm-up."""
        if replacement.running:
            replacement.running = False
            self._policy_host.retire(replacement.warm)
            self._intake.remove(replacement.warm)
            replacement.warm.become(QueryState.STOPPED)

    def _end(self, replacement: _Replacement) -> None:
        """Drop the warm-up with its state."""
        self._part(replacement)
        for operator in replacement.warm.network.operators.values():
            operator.abandon()


def _warming(query: RunningQuery, request: QueryRequest, begins: WarmUpStart) -> QueryRequest:
    """Return the request of a warm-up."""
    options, id_ = replace(request.options, start_at=None), f"{query.id}{NEW}"
    return replace(request, id=id_, options=options, earliest=False, positions=begins.positions, shares=False)
