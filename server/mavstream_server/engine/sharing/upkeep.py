"""Upkeep of shared pipelines: detaches members that lag so that they never hold the others back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mavstream_protocol.errors import MavstreamError
from mavstream_server.engine.sharing.membership import Membership
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.operators.operator import QueryFailed

if TYPE_CHECKING:
    from mavstream_server.engine.engine import Engine

_PATIENCE = 5_000_000  # ns that the other members may wait for one with full queues


class PipelineUpkeep:
    """Handles pipelines that buffer rows, have failed, have fewer than two members or one with full queues.

    It is notified of them while slices run, and acts between two slices.
    """

    def __init__(
        self,
        engine: Engine,
        detach: Callable[[Membership, int], None],
        account: Callable[[SharedPipeline], None],
        schedule: Callable[[int], None],
    ) -> None:
        """Create the upkeep of an engine's pipelines.

        `detach` detaches a member at a time (ns), `account` sets a pipeline's class and weight, and
        `schedule` is called with the time (ns) at which something will be due.
        """
        self._engine = engine
        self._detach = detach
        self._account = account
        self._schedule = schedule
        self._gathering: dict[SharedPipeline, tuple[int, int]] = {}  # since and until when they buffer rows
        self._troubled: dict[SharedPipeline, None] = {}

    def times(self, now: int) -> list[int]:
        """Return the times (ns) at which something is due."""
        crowded = [pipeline.crowded_since for pipeline in self._troubled]
        return [
            *(until for _, until in self._gathering.values()),
            *(now if since is None else since + _PATIENCE for since in crowded),
        ]

    # Buffered rows

    def gathers(self, pipeline: SharedPipeline) -> None:
        """Record that a pipeline buffers rows to emit larger batches, at most for its source's linger cap."""
        (source,) = pipeline.sources.values()
        now = self._engine.clock.now()
        self._gathering[pipeline] = now, now + source.linger.limit
        self._schedule(now + source.linger.limit)

    def flush(self, now: int | None) -> bool:
        """Emit rows that were buffered long enough by `now`, or all if None; returns whether any were."""
        flushed = False
        for pipeline, (since, until) in tuple(self._gathering.items()):
            if now is None or not since <= now < until or not pipeline.fan_out.gathered:
                del self._gathering[pipeline]
                flushed = flushed or bool(pipeline.fan_out.gathered)
                pipeline.fan_out.flush()
        return flushed

    # Failures, and members that lag

    def trouble(self, pipeline: SharedPipeline) -> None:
        """Check a pipeline at the next step."""
        self._troubled[pipeline] = None
        self._schedule(0)

    def is_crowded(self, pipeline: SharedPipeline) -> None:
        """Record that the queues of a member are full."""
        if pipeline.crowded_since is None:
            pipeline.crowded_since = self._engine.clock.now()
            self._troubled[pipeline] = None
            self._schedule(pipeline.crowded_since + _PATIENCE)

    def ended(self, pipeline: SharedPipeline) -> None:
        """Remove a pipeline that has ended; if it failed, its members fail at the next step."""
        self._gathering.pop(pipeline, None)
        if pipeline.error is not None:
            self.trouble(pipeline)

    def check_memory(self, pipeline: SharedPipeline) -> None:
        """Check a pipeline at the next step if it holds more memory than a member's limit."""
        if pipeline.lowest_limit is not None and pipeline.memory.resident > pipeline.lowest_limit:
            self.trouble(pipeline)

    def help(self, now: int) -> bool:
        """Handle failed and crowded pipelines where that is due; returns whether any was handled."""
        done = False
        for pipeline in tuple(self._troubled):
            if self._handled(pipeline, now):
                del self._troubled[pipeline]
                done = True
        return done

    def _handled(self, pipeline: SharedPipeline, now: int) -> bool:
        if pipeline.error is not None:
            self._fail_with(pipeline, *pipeline.error)
            return True
        if not pipeline.active:
            return True
        for member in tuple(pipeline.members):
            self._engine.check_memory(member.query)
        if len(pipeline.members) < 2:
            for member in tuple(pipeline.members):
                self._detach(member, now)
            self._engine.stop_pipeline(pipeline)
            return True
        self._account(pipeline)
        return self._room_restored(pipeline, now)

    def _room_restored(self, pipeline: SharedPipeline, now: int) -> bool:
        """Detach members with full queues if the others waited too long; returns whether all have room."""
        if not pipeline.crowded:
            pipeline.crowded_since = None
            return True
        full = [member for member in pipeline.members if not member.has_room]
        since = pipeline.crowded_since
        if since is None or len(full) == len(pipeline.members):
            pipeline.crowded_since = now  # no member waits for another one
            return False
        if since <= now < since + _PATIENCE:
            return False
        for member in full:
            member.prefix.was_slow(now)
            self._detach(member, now)
        pipeline.crowded_since = None
        self._engine.intake.unblock(pipeline, now)
        return len(pipeline.members) >= 2

    def _fail_with(self, pipeline: SharedPipeline, operator: str, error: Exception) -> None:
        """Fail the members with the error that they would have raised themselves."""
        for member in tuple(pipeline.members):
            own = member.own_name(operator)
            reported = error
            if isinstance(error, MavstreamError):
                reported = QueryFailed(str(error).replace(repr(operator), repr(own)))
            self._engine.fail(member.query, own, reported)
