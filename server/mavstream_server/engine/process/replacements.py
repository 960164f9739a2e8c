"""Replacements of plans in an engine process: each is replied to when it is done and on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from mavstream_server.engine.checkpoints.checkpointer import Checkpointer
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.process.messages import Done, Failed, ReplacePlan, Reply
from mavstream_server.engine.sinks import ResultLogSink

_log = logging.getLogger(__name__)

_PATIENCE = 10_000_000_000  # ns that a query may take to process what it has read
REFUSED = "replace_refused"

Replier = Callable[[Reply], None]


class Replacements:
    """The replacements that wait for a quiescent point of their query."""

    def __init__(self, engine: Engine, checkpointer: Checkpointer) -> None:
        self._engine = engine
        self._checkpointer = checkpointer
        self._deadlines: dict[str, int] = {}

    def begin(self, command: ReplacePlan, reply: Replier) -> None:
        """Replace a query's plan as soon as possible, and reply then; raises MavstreamError."""
        query = self._engine.query(command.id)
        if query.active and query.migrations.version == command.version:  # the reply was lost
            self._checkpointer.when_recorded(command.id, partial(reply, Done(None)))
            return
        self._engine.replace(command.id, command.plan, command.version, partial(self._ended, command, reply))
        self._deadlines[command.id] = self._engine.clock.monotonic() + _PATIENCE

    def check(self, now: int) -> None:
        """Give up what takes too long; `now` is monotonic. Cheap to call often."""
        for id_, deadline in tuple(self._deadlines.items()):
            if now > deadline:
                why = f"it did not process what it had read within {_PATIENCE // 1_000_000_000} s; try again"
                self._engine.migrations.drop(self._engine.query(id_), why)

    def _ended(self, command: ReplacePlan, reply: Replier, failure: str | None) -> None:
        """Record a replacement before the query goes on, and reply when that is on disk."""
        self._deadlines.pop(command.id, None)
        if failure is not None:
            reply(Failed(REFUSED, f"query {command.id!r} keeps its plan: {failure}"))
            return
        query, checkpointer = self._engine.query(command.id), self._checkpointer
        sink = query.output.sink
        if isinstance(sink, ResultLogSink):
            sink.revision = command.revision
        try:
            checkpointer.add_plan(query.id, command.version, command.plan_json)
            checkpointer.record_command(query)
            checkpointer.when_recorded(query.id, partial(reply, Done(None)))
        except Exception as error:
            _log.exception("replacement not recorded", extra={"fields": {"query": query.id}})
            reply(Failed("internal_error", f"the new plan was not recorded: {error}"))
