"""States of operators and queries, and the moves that are allowed between them."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TypeVar

from mavstream_protocol.errors import MavstreamError


class OperatorState(StrEnum):
    """The life of an operator (MavStream thesis, 5.1.1)."""

    READY = "ready"
    """Something waits at its inputs; the scheduler may choose it."""
    RUN = "run"
    SUSPEND = "suspend"
    """Nothing waits at its inputs."""
    STOP = "stop"
    """Its query has ended."""


class QueryState(StrEnum):
    """The life of a running query."""

    RUNNING = "running"
    PAUSED = "paused"
    """Detached from its streams: rows of the pause are not seen."""
    FINISHED = "finished"
    """It has reached its end by itself: `until`, `stop_at`, one-time, or all streams complete."""
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
    """A state was to change in a way that its table does not allow."""

    code = "wrong_state"


def move(kind: str, name: str, old: S, new: S, moves: dict[S, frozenset[S]]) -> S:
    """Return the new state; raises IllegalMove that names who, from where, to where and what is allowed."""
    if new not in moves[old]:
        allowed = ", ".join(sorted(str(state.value) for state in moves[old])) or "nothing: it is an end"
        raise IllegalMove(
            f"{kind} {name!r} is {old.value} and cannot become {new.value}; "
            f"from there it can become {allowed}"
        )
    return new
