"""Faults: what a round does to the server, and the way back."""

from __future__ import annotations

import time

from chaos.damage import damage_newest
from chaos.report import ChaosReport
from chaos.schedule import Round
from chaos.server import ChaosServer, ServerGone, wait_for
from mavstream_server.core.storage.failpoints import FailAction, parse

_FIRES_WITHIN = 3.0
"""Seconds that an armed failpoint has to be reached; rare ones may not be."""


class Faults:
    """Does to a server what rounds say, and counts it."""

    def __init__(self, server: ChaosServer, queries: list[str], report: ChaosReport) -> None:
        """`queries` are the ids of those whose checkpoints may be damaged."""
        self._server = server
        self._queries = queries
        self._report = report

    def arm(self, round_: Round) -> None:
        """Start the server again with the failpoint of a round, which takes a kill, if it has one."""
        if round_.failpoint is not None:
            self._kill_api()
            self._server.start_again(round_.failpoint)
            # The failpoint may act before the server is ready.
            self._server.wait_ready()

    def strike(self, round_: Round) -> None:
        """Do what a round does to the server, and return when the server is ready again."""
        if round_.failpoint is not None:
            self._run_into(round_.failpoint)
        elif round_.fault is not None:
            self._report.faults[round_.fault] += 1
            engine = self._server.engine_pid
            begin = time.monotonic()
            self._do(round_.fault, round_.pick)
            self._recover(engine)
            self._report.recovered(time.monotonic() - begin)

    def _do(self, fault: str, pick: int) -> None:
        if fault in ("engine", "both") and self._server.kill_engine() is not None:
            self._report.sigkills["engine"] += 1
        if fault in ("api", "both", "damage"):
            self._kill_api()
        if fault == "damage":
            self._report.damaged += damage_newest(self._server.data, self._queries, pick)
        if fault == "stop" and (code := self._server.stop()) != 0:
            raise ServerGone(f"the server did not stop in order, but with code {code}")

    def _kill_api(self) -> None:
        self._server.kill_api()
        self._report.sigkills["api"] += 1

    def _recover(self, old_engine: int | None) -> None:
        server = self._server
        if not server.alive:
            server.start_again()
        if not server.wait_ready(old_engine):
            raise ServerGone(f"the server ended by itself:\n{server.log_tail()}")

    def _run_into(self, failpoint: str) -> None:
        """Feed until an armed failpoint has acted, or has not for long."""
        server, (point,) = self._server, parse(failpoint)
        name = failpoint.partition("@")[0]
        try:
            wait_for(lambda: server.has_fired(failpoint), "a failpoint", _FIRES_WITHIN)
        except ServerGone:
            if not server.disarm(failpoint):
                self._report.unreached[name] += 1
                return
        self._report.faults["failpoints"] += 1
        self._report.failpoints[name] += 1
        begin = time.monotonic()
        if point.action in (FailAction.KILL, FailAction.TORN):
            assert point.process is not None
            self._report.sigkills[point.process] += 1
            if point.process == "api":
                wait_for(lambda: not server.alive, "the death of the API process")
        if not server.alive:
            server.start_again()
        self._wait_steady()
        self._report.recovered(time.monotonic() - begin)

    def _wait_steady(self) -> None:
        """Wait until the server is ready twice with the same engine: one that is dying may look ready."""
        server, engine = self._server, None
        while engine is None or engine != server.engine_pid:
            engine = server.engine_pid
            if not server.wait_ready():
                raise ServerGone(f"the server ended by itself:\n{server.log_tail()}")
