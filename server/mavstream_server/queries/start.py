"""What the start of a query takes: the command for the engine, and what its plan expects of time."""

from __future__ import annotations

from collections.abc import Mapping

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
            spec.start_at,
            spec.stop_at,
            infer_utility(spec.qos, query.plan),
        ),
        # What is instantiated again goes on with the rows to come.
        earliest=spec.from_ is ReadFrom.EARLIEST and not query.begun,
        latency_target=None if spec.qos.latency is None else spec.qos.latency.at_most,
        epoch=query.epoch,
        # Memory is a target that is watched, not a limit that kills.
        memory_limit=None,
        positions=begins,
        paused=query.record.desired is DesiredState.PAUSED,
    )
