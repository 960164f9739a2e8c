"""Saves the state of a query between two slices to bytes, and loads it."""

from __future__ import annotations

from mavstream_protocol.errors import MavstreamError
from mavstream_server.engine import snapshot
from mavstream_server.engine.query import NEW, RunningQuery


class WorkUnderWay(MavstreamError):
    """A query that cannot be saved yet, because the rest of an operator's work would emit too much."""

    code = "work_under_way"


def save(query: RunningQuery, most: int | None = None) -> bytes:
    """Return a query's operator states, queues, positions and offset, for the plan that runs now.

    Unfinished work is finished first. Raises WorkUnderWay if an operator emits more than `most` bytes then.
    """
    every = query.network.operators
    operators = {name: every[name] for name in every if not name.startswith(NEW)}
    for operator in operators.values():  # bottom-up, so that all they emit is in a queue or the result log
        if not operator.finish(most):
            raise WorkUnderWay(
                f"operator {operator.name!r} of query {query.id!r} has work under way "
                f"that emits more than {most} bytes; the query is saved when less of it is left"
            )
    return snapshot.encode(
        {
            "plan": _fingerprint(query),
            "operators": {name: operator.save() for name, operator in operators.items()},
            "queues": {
                name: [list(queue) for queue in operator.inputs] for name, operator in operators.items()
            },
        }
    )


def load(query: RunningQuery, saved: bytes | memoryview) -> None:
    """Load what `save` returned into a query of the same plan before it runs; raises SnapshotMismatch."""
    tree = snapshot.decode(saved)
    if tree["plan"] != _fingerprint(query):
        raise snapshot.SnapshotMismatch(
            f"the snapshot is of another plan than query {query.id!r} has; "
            "restore it with the plan of which it was taken"
        )
    for name, operator in query.network.operators.items():
        operator.load(tree["operators"][name])
    # Tasks must not wake while batches are pushed; the policy is notified when the query is admitted.
    for name, operator in query.network.operators.items():
        for queue, batches in zip(operator.inputs, tree["queues"][name], strict=True):
            filled, queue.filled = queue.filled, _ignore
            for batch in batches:
                queue.push(batch)
            queue.filled = filled


def _fingerprint(query: RunningQuery) -> str:
    """Return the definition of a query's plan: equal for plans that differ in columns that nobody reads."""
    plan = query.request.plan
    carried = plan.needed_columns()
    nodes = [
        (name, node.inputs, node.signature(frozenset(columns)), [node.schema.get(one) for one in columns])
        for name, node in plan.nodes.items()
        for columns in (carried[name],)
    ]
    return repr((plan.root, nodes))


def _ignore() -> None:
    """Do nothing: replaces a queue's callback while batches are loaded."""
