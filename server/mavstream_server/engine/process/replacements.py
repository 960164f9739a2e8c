"""Replacements of plans in an engine process: each is replied to when it is done and on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from mavstream_server.engine.checkpoints.checkpointer import Checkpointer
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.migration.replacement import NewPlan, Replaced, ReplacementRefused
from mavstream_server.engine.process.messages import Done, Failed, PlanReplaced, ReplacePlan, Reply
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sinks import ResultLogSink

_log = logging.getLogger(__name__)

Replier = Callable[[Reply], None]


class PlanReplacer:
    """Replaces plans on command, and records the replacements."""

    def __init__(self, engine: Engine, checkpointer: Checkpointer, query_memory: int | None) -> None:
        """`query_memory` is the memory limit of queries that have none of their own."""
        self._engine = engine
        self._checkpointer = checkpointer
        self._query_memory = query_memory

    def begin(self, command: ReplacePlan, reply: Replier) -> None:
        """Replace a query's plan as soon as possible, and reply then; raises MavstreamError."""
        query = self._engine.query(command.id)
        if query.active and query.migrations.version == command.version:  # the reply was lost
            self._checkpointer.when_recorded(command.id, partial(reply, Done(_seam(query))))
            return
        limit = self._query_memory if command.memory_limit is None else command.memory_limit
        change = NewPlan(command.plan, command.on_error, limit, command.utility)
        self._engine.replace(command.id, change, command.version, partial(self._ended, command, reply))

    def check(self, now: int) -> None:
        """Give up what takes too long; `now` is monotonic. Cheap to call often."""
        self._engine.plan_changes.replacements.check(now)

    def _ended(self, command: ReplacePlan, reply: Replier, outcome: Replaced | str) -> None:
        """Record a replacement before the query goes on, and reply when that is on disk."""
        if isinstance(outcome, str):
            refused = f"query {command.id!r} keeps its plan: {outcome}"
            reply(Failed(ReplacementRefused.code, refused))
            return
        query, checkpointer = self._engine.query(command.id), self._checkpointer
        sink = query.output.sink
        if isinstance(sink, ResultLogSink):
            sink.revision = command.revision
        query.migrations.seam = outcome.offset, {name: (*one,) for name, one in outcome.lacking.items()}
        if outcome.lacking:
            firsts = {stream: lacking.first for stream, lacking in outcome.lacking.items()}
            fields = {"query": query.id, "first_retained": firsts}
            _log.warning("rows before a replacement are not retained any more", extra={"fields": fields})
        try:
            checkpointer.add_plan(query.id, command.version, command.plan_json)
            checkpointer.record_command(query)
            checkpointer.when_recorded(query.id, partial(reply, Done(_seam(query))))
        except Exception as error:
            _log.exception("replacement not recorded", extra={"fields": {"query": query.id}})
            reply(Failed("internal_error", f"the new plan was not recorded: {error}"))


def _seam(query: RunningQuery) -> PlanReplaced | None:
    """Return where the plan of a query was replaced for the last time."""
    seam = query.migrations.seam
    return None if seam is None else PlanReplaced(*seam)
