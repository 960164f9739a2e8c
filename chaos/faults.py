"""Faults: what a round does to the server, and the way back."""

from __future__ import annotations

import time

from chaos.report import ChaosReport
from chaos.schedule import Round
from chaos.server import ChaosServer, ServerGone, wait_for

_FIRES_WITHIN = 5.0
"""Seconds that an armed failpoint has to be reached; rare ones may not be."""


def strike(server: ChaosServer, round_: Round, report: ChaosReport) -> None:
    """Do what a round does to the server, and return when the server is ready again."""
    begin, engine = time.monotonic(), server.engine_pid
    match round_.fault:
        case None:
            return
        case "engine":
            engine = server.kill_engine()
        case "api":
            server.kill_api()
        case "both":
            engine = server.kill_engine()
            server.kill_api()
        case _:
            _run_into_failpoint(server, round_.failpoint or "", report)
            return
    report.kills[round_.fault] += 1
    _recover(server, engine)
    report.longest_recovery_s = max(report.longest_recovery_s, time.monotonic() - begin)


def _recover(server: ChaosServer, old_engine: int | None) -> None:
    if not server.alive:
        server.start_again()
    if not server.wait_ready(old_engine):
        raise ServerGone(f"the server ended by itself:\n{server.log_tail()}")


def _run_into_failpoint(server: ChaosServer, failpoint: str, report: ChaosReport) -> None:
    """Start the server again with a failpoint, which takes a kill, and feed until it has fired."""
    for marker in server.once.iterdir():
        marker.unlink()
    server.kill_api()
    report.kills["api to arm"] += 1
    server.start_again(failpoint)
    name = failpoint.partition("@")[0]
    try:
        wait_for(lambda: any(server.once.iterdir()) or not server.alive, "a failpoint", _FIRES_WITHIN)
    except ServerGone:
        report.unfired[name] += 1
    else:
        report.kills[name] += 1
        if failpoint.startswith("api") and "short" not in failpoint:
            wait_for(lambda: not server.alive, "the death of the API process")
    if not server.alive:
        server.start_again()
    # The engine may just be dying: it is ready again when the server says so twice, with the same engine.
    while True:
        if not server.wait_ready():
            raise ServerGone(f"the server ended by itself:\n{server.log_tail()}")
        engine = server.engine_pid
        if server.wait_ready() and server.engine_pid == engine:
            return
