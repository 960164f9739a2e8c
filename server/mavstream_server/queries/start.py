"""What the start of a query takes: the command for the engine, and what its plan expects of time."""

from __future__ import annotations

from collections.abc import Mapping

from mavstream_protocol.qos import QosSpec
from mavstream_protocol.queries import Mode, ReadFrom
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_protocol.utility import infer_utility
from mavstream_protocol.wire.resources import DesiredState
from mavstream_server.engine.process.messages import StartQuery
from mavstream_server.planning.instantiator import RunOptions
from mavstream_server.queries.query import Query


def waits_for_time(plan: TypedPlan) -> bool:
    """Return whether a plan answers, or lets rows go, when time has passed."""
    return any(node.waits_for_time for node in plan.nodes.values())


def start_command(query: Query, begins: Mapping[str, int] | None) -> StartQuery:
    """Return the command that starts a query under its current epoch, at these positions if given."""
    assert query.plan is not None
    spec = query.record.spec
    return StartQuery(
        id=query.id,
        plan=query.plan,
        class_name=spec.class_,
        options=RunOptions(
            spec.on_error,
            spec.mode is Mode.ONE_TIME,
            _start_at(query, begins),
            spec.stop_at,
            since=_started(query),
            worth=infer_utility(spec.qos, query.plan),
        ),
        # What is instantiated again goes on with the rows to come.
        earliest=spec.from_ is ReadFrom.EARLIEST and not query.begun,
        latency_target=latency_target(spec.qos),
        epoch=query.epoch,
        # Memory is a target that is watched, not a limit that kills.
        memory_limit=None,
        positions=begins,
        paused=query.record.desired is DesiredState.PAUSED,
    )


def latency_target(qos: QosSpec) -> int | None:
    """Return the latency that sources go by when they wait for more rows; None without a target."""
    return None if qos.latency is None else qos.latency.at_most


def _start_at(query: Query, begins: Mapping[str, int] | None) -> int | None:
    """Return the arrival time that a query starts at; None for one that was instantiated before."""
    spec = query.record.spec
    if query.begun or spec.start_at is None:
        return None
    # Without positions it is looked for in the logs: not among rows from before it was registered.
    from_here = begins is None and spec.from_ is ReadFrom.NOW
    return max(spec.start_at, query.record.created_us) if from_here else spec.start_at


def _started(query: Query) -> int | None:
    """Return when a query started that is placed for the first time; None for one that begins elsewhere."""
    spec = query.record.spec
    if query.begun or spec.from_ is ReadFrom.EARLIEST:
        return None
    return query.record.created_us if spec.start_at is None else max(spec.start_at, query.record.created_us)
