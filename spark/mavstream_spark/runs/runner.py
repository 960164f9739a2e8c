"""The runner: finds the queries with backend `spark` and runs each in a thread of its own."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING

from mavstream_protocol.wire.resources import DesiredState
from mavstream_spark.runs.query_run import QueryRun, RunOptions
from mavstream_spark.runs.server import RunServer
from mavstream_spark.source.connection import RequestFailed
from mavstream_spark.source.options import ServerOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("mavstream.spark")

_LOOK_S = 1.0
"""Interval at which queries are looked up, in seconds: what they are to do is followed within 5 s."""


@dataclass(slots=True)
class Runner:
    """Runs the queries of a server until it is stopped."""

    spark: SparkSession
    server: ServerOptions
    options: RunOptions
    interval: float
    """Seconds between two micro-batches of a query."""
    _stopped: Event = field(default_factory=Event)
    _threads: dict[str, Thread] = field(default_factory=dict)
    _runs: dict[str, QueryRun] = field(default_factory=dict)

    def stop(self) -> None:
        """Let `run` return; may be called from a signal handler or another thread."""
        self._stopped.set()

    def run(self) -> None:
        """Run queries until `stop`; raises RequestFailed if the server refuses the token."""
        server = RunServer.at(self.server)
        while not self._stopped.wait(_LOOK_S if self._threads else min(_LOOK_S, self.interval)):
            try:
                self._look(server)
            except RequestFailed as error:
                if error.problem in ("not_authorised", "forbidden"):
                    raise
                _LOG.warning("queries cannot be looked up: %s", error)
        server.close()
        for id_ in list(self._threads):
            self.spark.sparkContext.cancelJobGroup(id_)
        for thread in self._threads.values():
            thread.join()

    def _look(self, server: RunServer) -> None:
        """Start the runs of new queries, and cancel the jobs of those that are to run no more."""
        running = {id_ for id_, thread in self._threads.items() if thread.is_alive()}
        self._threads = {id_: self._threads[id_] for id_ in running}
        self._runs = {id_: self._runs[id_] for id_ in running}
        found = {query.id: query for query in server.queries() if query.state not in _NOT_RUN}
        for id_ in found.keys() - running:
            self._start(id_)
        for id_ in running:
            wanted = found.get(id_)
            if wanted is None or wanted.desired is not DesiredState.RUNNING:
                self.spark.sparkContext.cancelJobGroup(id_)
            else:
                self._runs[id_].report_for(server)

    def _start(self, id_: str) -> None:
        _LOG.info("query '%s' runs", id_)
        run = self._runs[id_] = QueryRun(id_, RunServer.at(self.server), self.spark, self.options)
        thread = self._threads[id_] = Thread(target=self._run, args=(run,), name=f"query {id_}", daemon=True)
        thread.start()

    def _run(self, run: QueryRun) -> None:
        try:
            while not self._stopped.is_set() and self._step(run):
                self._stopped.wait(self.interval)
        finally:
            run.server.close()

    def _step(self, run: QueryRun) -> bool:
        try:
            return run.step()
        except RequestFailed as error:
            _LOG.warning("query '%s' waits for the server: %s", run.id, error)
            return True
        except Exception:
            _LOG.exception("run of query '%s' failed and is started again", run.id)
            return False


_NOT_RUN = frozenset({"scheduled", "finished", "stopped", "failed"})
