"""Invariants: what must hold for everybody else during and after each attack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attack.findings import Findings

MIB = 1 << 20


class Limits(NamedTuple):
    """The bounds that are checked."""

    wait_s: float = 1.0
    """The longest wait for the answer to any request, a health check, an ack or an answer of a query."""
    api_bytes: int = 512 * MIB
    """The most resident memory of the API process; there is no setting for it."""
    engine_bytes: int = 768 * MIB
    """The most resident memory of the engine process, and of one that it has forked."""


class Waits(NamedTuple):
    """What the bystanders saw since the last report."""

    livez_s: float
    """The longest answer of a health check."""
    ack_s: float
    """The longest wait for an ack."""
    answer_s: float
    """The longest time from sending a row to its answer by the important query."""
    acked: int
    """Rows acked since the beginning."""
    answered: int
    """Rows answered since the beginning, each counted once."""
    missing: int
    """Rows that were skipped by the answers."""
    doubled: int
    """Rows that were answered before."""
    troubles: tuple[str, ...]
    """Failed health checks, closed connections, gaps."""


class Observed(NamedTuple):
    """What was observed during one attack."""

    waits: Waits
    api_bytes: int
    """The most resident memory of the API process during the attack."""
    engine_bytes: int
    engine_before: int | None
    """The engine's process id before the attack."""
    engine_after: int | None
    errors: tuple[str, ...]
    """Errors and tracebacks in the server's log."""


def violations(findings: Findings, observed: Observed, limits: Limits) -> list[str]:
    """Return what an attack found, and each invariant that was violated, with what was observed."""
    found = [*findings.violations, *_waits(observed.waits, limits), *_processes(observed, limits)]
    if findings.longest_s > limits.wait_s:
        found.append(f"{findings.slowest}: took {findings.longest_s:.2f} s, more than {limits.wait_s:g} s")
    return found


def _waits(waits: Waits, limits: Limits) -> Iterator[str]:
    for name, seconds in (
        ("a health check", waits.livez_s),
        ("an ack", waits.ack_s),
        ("an answer of the important query", waits.answer_s),
    ):
        if seconds > limits.wait_s:
            yield f"{name} took {seconds:.2f} s, more than {limits.wait_s:g} s"
    if waits.missing:
        yield f"{waits.missing} rows were skipped by the important query"
    if waits.doubled:
        yield f"{waits.doubled} rows were answered twice by the important query"
    if waits.acked != waits.answered:
        yield f"{waits.acked} rows were acked and {waits.answered} answered"
    yield from waits.troubles


def _processes(observed: Observed, limits: Limits) -> Iterator[str]:
    for name, held, limit in (
        ("API process", observed.api_bytes, limits.api_bytes),
        ("engine", observed.engine_bytes, limits.engine_bytes),
    ):
        if held > limit:
            yield f"the {name} held {held / MIB:.0f} MiB, more than {limit / MIB:.0f} MiB"
    if observed.engine_after is None:
        yield "the engine is not running"
    elif observed.engine_after != observed.engine_before:
        yield f"the engine died: process {observed.engine_before} became {observed.engine_after}"
    for line in observed.errors:
        yield f"the server logged an error: {line[:1000]}"
