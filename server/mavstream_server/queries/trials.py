"""Runs trials: a process each, bounded in time, memory and rows."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.wire.trials import TrialSpec
from mavstream_server.core.errors import Refused, TooMany
from mavstream_server.core.principal import ANYBODY, Principal
from mavstream_server.engine.trial.job import FAILED, TrialJob
from mavstream_server.queries.planning.planner import QueryPlanner

_LOG = logging.getLogger("mavstream.server")

_SECONDS, _MOST_CPU_S, _LONGEST_S = 5.0, 20, 60.0
"""Time of a processor for the rows and for the whole process, and time after which it is killed."""
_MEMORY, _DATA = 128 << 20, 1 << 30
"""Bytes of a query in queues and state, and of the whole process."""
_AT_ONCE, _MOST_WAITING = 1, 8
_NICENESS = 5


class TrialFailed(MavstreamError):
    """The tried query failed, or took too long."""

    code = "trial_failed"
    title = "The trial failed"
    status = 422


class Trials:
    """Tries queries, one at a time."""

    def __init__(self, planner: QueryPlanner, streams: Path, tables: Path) -> None:
        """`streams` and `tables` are the directories of their files."""
        self._planner = planner
        self._streams = streams
        self._tables = tables
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def run(self, spec: TrialSpec, principal: Principal = ANYBODY) -> bytes:
        """Return a `TrialResult` as JSON.

        Raises InvalidQuery, Refused, TooMany, TrialFailed, and Forbidden for streams that are not allowed.
        """
        if (spec.plan is None) == (spec.sql is None):
            raise Refused("expected either 'plan' or 'sql': give one of the two", code="invalid_trial")
        data: Mapping[str, object] = (
            {"name": "trial", "sql": spec.sql}
            if spec.plan is None
            else {
                "name": "trial",
                "plan": spec.plan.model_dump(mode="json", by_alias=True, exclude_unset=True),
            }
        )
        planned = await self._planner.plan(data)
        for stream in planned.spec.plan.streams:
            principal.require_stream(stream)
        if planned.spec.plan.queries:
            named = ", ".join(sorted(planned.spec.plan.queries))
            raise Refused(
                f"the query reads the results of {named}, and a trial reads streams alone: register it",
                code="trial_reads_query",
            )
        job = TrialJob(planned.plan, self._streams, self._tables, spec.rows, spec.limit, _SECONDS, _MEMORY)
        if self._waiting >= _MOST_WAITING:
            raise TooMany(
                f"{_MOST_WAITING} trials wait already, which is the limit: try again soon",
                code="too_many_trials",
            )
        self._waiting += 1
        try:
            async with self._turn:
                return await self._in_process(job)
        finally:
            self._waiting -= 1

    async def _in_process(self, job: TrialJob) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mavstream_server.engine.trial.process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_bound,
        )
        try:
            async with asyncio.timeout(_LONGEST_S):
                out, errors = await process.communicate(pickle.dumps(job))
        except TimeoutError:
            raise TrialFailed(f"the trial took longer than {_LONGEST_S:g} s: try it on fewer rows") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == FAILED:
            raise TrialFailed(f"the query failed: {out.decode(errors='replace')}")
        if process.returncode:
            _LOG.error("a trial died", extra={"code": process.returncode, "reason": _tail(errors)})
            raise TrialFailed("the trial's process died, perhaps for want of memory: try it on fewer rows")
        return out


def _tail(errors: bytes) -> str:
    return errors.decode(errors="replace").strip()[-500:]


def _bound() -> None:
    """Bound the process before it begins; it leaves processors to those that serve rows."""
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (_DATA, _DATA))
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))
