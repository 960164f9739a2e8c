"""Saving: a query's whole state between two slices, as bytes, and back."""

from __future__ import annotations

from mavstream_server.engine import snapshot
from mavstream_server.engine.query import NEW, RunningQuery


def save(query: RunningQuery) -> bytes:
    """Return operators, queues, positions and offset of a query; it goes on with the plan that runs now."""
    every = query.network.operators
    operators = {name: every[name] for name in every if not name.startswith(NEW)}
    return snapshot.encode(
        {
            "plan": _fingerprint(query),
            "operators": {name: operator.save() for name, operator in operators.items()},
            "queues": {
                name: [list(queue) for queue in operator.inputs] for name, operator in operators.items()
            },
        }
    )


def load(query: RunningQuery, saved: bytes) -> None:
    """Take over what `save` returned for a query of the same plan, which must not run yet."""
    tree = snapshot.decode(saved)
    if tree["plan"] != _fingerprint(query):
        raise snapshot.SnapshotMismatch(
            f"the snapshot is of another plan than query {query.id!r} has; "
            "restore it with the plan that it came from"
        )
    for name, operator in query.network.operators.items():
        operator.load(tree["operators"][name])
    # Tasks wake up while batches are pushed; the policy hears of them when the query is admitted.
    for name, operator in query.network.operators.items():
        for queue, batches in zip(operator.inputs, tree["queues"][name], strict=True):
            filled, queue.filled = queue.filled, _nobody
            for batch in batches:
                queue.push(batch)
            queue.filled = filled


def _fingerprint(query: RunningQuery) -> str:
    return repr(query.request.plan)


def _nobody() -> None:
    """Stand in for a consumer while queues are filled by hand."""
