"""API forms of what survives a crash: a query's last checkpoint and the delivery guarantee in force."""

from __future__ import annotations

from typing import NamedTuple

from mavstream_protocol.instants import format_instant
from mavstream_protocol.wire.delivery import CheckpointInfo, DeliveryGuarantee, QueryDelivery, Synced
from mavstream_protocol.wire.resources import ActualState
from mavstream_server.core.metrics import CheckpointMetrics, QueryMetrics
from mavstream_server.core.settings import Settings

_NOT_RUNNING = {
    ActualState.SCHEDULED: "the query has not started: a crash changes nothing",
    ActualState.STARTING: "no engine runs the query at present",
    ActualState.FINISHED: "the query has finished: its results are delivered as long as they are retained",
    ActualState.STOPPED: "the query was stopped: its results are delivered as long as they are retained",
    ActualState.FAILED: "the query has failed: its results are delivered as long as they are retained",
}
_STARTS_AGAIN = "after a crash the query starts again with new rows and empty state"


class Durability(NamedTuple):
    """What the server is set up to store for its queries."""

    checkpoints: bool
    """Whether checkpoints are taken."""
    sync: bool
    """Whether acknowledged rows, checkpoints and delivered results are synced to disk."""

    @classmethod
    def of(cls, settings: Settings) -> Durability:
        """Return what the settings say."""
        return cls(settings.checkpoint_interval is not None, settings.delivery == "sync")

    def delivery(
        self, state: ActualState, metrics: QueryMetrics | None, *, outside: bool = False
    ) -> QueryDelivery:
        """Return the delivery guarantee in force for a query with these metrics, None if not known.

        `outside` is whether a runner of another backend runs it.
        """
        guarantee, detail = self._guarantee(state, metrics)
        if outside and state not in _NOT_RUNNING:
            guarantee = DeliveryGuarantee.EXACTLY_ONCE
            detail = "after a crash its runner goes on behind the last batch that was published"
        synced: tuple[Synced, ...] = ()
        if self.sync:
            state_too = self.checkpoints or outside
            synced = (Synced.ROWS, Synced.RESULTS, *((Synced.CHECKPOINTS,) if state_too else ()))
        return QueryDelivery(guarantee=guarantee, detail=detail, survives_power_loss=synced)

    def _guarantee(
        self, state: ActualState, metrics: QueryMetrics | None
    ) -> tuple[DeliveryGuarantee | None, str]:
        if state in _NOT_RUNNING:
            return None, _NOT_RUNNING[state]
        if not self.checkpoints:
            return DeliveryGuarantee.AT_MOST_ONCE, f"checkpoints are off: {_STARTS_AGAIN}"
        if metrics is None:
            return None, "the engine has not reported the query's metrics yet"
        checkpoint = metrics.checkpoint
        error = None if checkpoint is None else checkpoint.error
        if checkpoint is None or checkpoint.taken_us is None:
            why = "" if error is None else f", the last attempt failed ({error})"
            return DeliveryGuarantee.AT_MOST_ONCE, f"there is no checkpoint{why}: {_STARTS_AGAIN}"
        detail = "after a crash the query continues from its last checkpoint"
        if error is not None:
            detail += f"; a newer one could not be written ({error})"
        return DeliveryGuarantee.EXACTLY_ONCE, detail


def checkpoint_info(metrics: CheckpointMetrics, now_us: int) -> CheckpointInfo:
    """Return the last checkpoint in its API form; `now_us` is the wall clock's time."""
    taken, duration = metrics.taken_us, metrics.duration_us
    known = taken is not None
    return CheckpointInfo(
        taken=None if taken is None else format_instant(taken),
        age_s=metrics.age_s(now_us),
        bytes=metrics.nbytes if known else None,
        duration_ms=None if duration is None or not known else duration / 1000,
        replayed_rows=metrics.replayed_rows,
        replaying=metrics.replaying,
        failures=metrics.failures,
        error=metrics.error,
    )
