"""Start commands: what the engine needs to start a query."""

from __future__ import annotations

from collections.abc import Mapping

from mavstream_protocol.qos import QosSpec
from mavstream_protocol.queries import Mode, ReadFrom
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_protocol.utility import infer_utility
from mavstream_protocol.wire.resources import DesiredState
from mavstream_server.engine.process.messages import StartQuery
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.queries.query import Query


def waits_for_time(plan: TypedPlan) -> bool:
    """Return whether a plan emits or discards rows because time has passed."""
    return any(node.waits_for_time for node in plan.nodes.values())


def start_command(query: Query, begins: Mapping[str, int] | None, *, again: bool) -> StartQuery:
    """Return the command that starts a query under its current epoch, at these positions if given.

    `again` is for a query that an engine has run before: it goes on with new rows.
    """
    assert query.plan is not None
    spec = query.record.spec
    return StartQuery(
        id=query.id,
        plan=query.plan,
        class_name=spec.class_,
        options=RunOptions(
            spec.on_error,
            spec.mode is Mode.ONE_TIME,
            None if again else _start_at(query, begins),
            spec.stop_at,
            since=None if again else _started(query),
            utility=infer_utility(spec.qos, query.plan),
        ),
        earliest=spec.from_ is ReadFrom.EARLIEST and not again,
        latency_target=latency_target(spec.qos),
        epoch=query.epoch,
        revision=query.revision,
        memory_limit=spec.memory_limit,
        positions=begins,
        shares=not query.suspect,
        paused=query.record.desired is DesiredState.PAUSED,
    )


def latency_target(qos: QosSpec) -> int | None:
    """Return the latency target that bounds the linger of sources; None without a target."""
    return None if qos.latency is None else qos.latency.at_most


def _start_at(query: Query, begins: Mapping[str, int] | None) -> int | None:
    """Return the arrival time at which a query starts reading; None if it starts at once."""
    spec = query.record.spec
    if spec.start_at is None:
        return None
    # Without positions the engine searches the logs: not for rows older than the registration.
    from_here = begins is None and spec.from_ is ReadFrom.NOW
    return max(spec.start_at, query.record.created_us) if from_here else spec.start_at


def _started(query: Query) -> int | None:
    """Return the start time of a query; None if it begins with the earliest rows."""
    spec = query.record.spec
    if spec.from_ is ReadFrom.EARLIEST:
        return None
    return query.record.created_us if spec.start_at is None else max(spec.start_at, query.record.created_us)
