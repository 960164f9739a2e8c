"""States of operators and queries, and the transitions that are allowed between them."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TypeVar

from mavstream_protocol.errors import MavstreamError


class OperatorState(StrEnum):
    """States of an operator (MavStream thesis, 5.1.1)."""

    READY = "ready"
    """Batches are queued at its inputs; the scheduler may choose it."""
    RUN = "run"
    SUSPEND = "suspend"
    """Its inputs are empty."""
    STOP = "stop"
    """Its query has ended."""


class QueryState(StrEnum):
    """States of a query in an engine."""

    RUNNING = "running"
    PAUSED = "paused"
    """Detached from its streams: rows that arrive meanwhile are not read."""
    FINISHED = "finished"
    """It has reached its end: `until`, `stop_at`, one-time, or all streams complete."""
    STOPPED = "stopped"
    FAILED = "failed"


OPERATOR_MOVES: dict[OperatorState, frozenset[OperatorState]] = {
    OperatorState.SUSPEND: frozenset({OperatorState.READY, OperatorState.STOP}),
    OperatorState.READY: frozenset({OperatorState.RUN, OperatorState.STOP}),
    OperatorState.RUN: frozenset({OperatorState.READY, OperatorState.SUSPEND, OperatorState.STOP}),
    OperatorState.STOP: frozenset(),
}

QUERY_MOVES: dict[QueryState, frozenset[QueryState]] = {
    QueryState.RUNNING: frozenset(
        {QueryState.PAUSED, QueryState.FINISHED, QueryState.STOPPED, QueryState.FAILED}
    ),
    QueryState.PAUSED: frozenset(
        {QueryState.RUNNING, QueryState.FINISHED, QueryState.STOPPED, QueryState.FAILED}
    ),
    QueryState.FINISHED: frozenset(),
    QueryState.STOPPED: frozenset(),
    QueryState.FAILED: frozenset(),
}

S = TypeVar("S", bound=Enum)


class IllegalMove(MavstreamError):
    """A state transition that is not allowed."""

    code = "wrong_state"


def move(kind: str, name: str, old: S, new: S, moves: dict[S, frozenset[S]]) -> S:
    """Return the new state; raises IllegalMove with the object, both states and the allowed transitions."""
    if new not in moves[old]:
        allowed = ", ".join(sorted(str(state.value) for state in moves[old])) or "nothing: it is an end"
        raise IllegalMove(
            f"{kind} {name!r} is {old.value} and cannot become {new.value}; "
            f"from there it can become {allowed}"
        )
    return new
