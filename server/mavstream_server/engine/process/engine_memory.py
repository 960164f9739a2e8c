"""The memory limit of an engine process: the query that holds most fails before the system ends them all."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mavstream_server.core.machine import private_memory
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.memory_limit import held
from mavstream_server.engine.process.allocator import return_freed_memory
from mavstream_server.engine.query import RunningQuery
from mavstream_server.operators.operator import QueryFailed

_log = logging.getLogger(__name__)

_EVERY = 500_000_000  # ns between two checks
_WARN_EVERY = 10_000_000_000  # ns between two warnings if no query is to blame
_SHARE = 10  # a query that holds less than this part of the limit is not to blame


class EngineMemory:
    """Checks what an engine process has allocated, at most twice a second."""

    def __init__(
        self,
        engine: Engine,
        limit: int | None,
        allocated: Callable[[], int] = private_memory,
        return_freed: Callable[[], None] = return_freed_memory,
    ) -> None:
        """`limit` is in bytes, None for no limit; the functions measure and reduce what is allocated."""
        self._engine = engine
        self._limit = limit
        self._allocated = allocated
        self._return_freed = return_freed
        self._checked = -_EVERY
        self._warned = -_WARN_EVERY

    def check(self, now_ns: int) -> None:
        """Fail the query that holds most if the process has allocated more than its limit."""
        if self._limit is None or now_ns - self._checked < _EVERY:
            return
        self._checked = now_ns
        if self._allocated() <= self._limit:
            return
        active = [query for query in self._engine.queries.values() if query.active]
        largest = max(active, key=lambda query: query.resident, default=None)
        to_blame = largest is not None and largest.resident * _SHARE >= self._limit
        if not to_blame and now_ns - self._warned < _WARN_EVERY:
            return
        # The allocator keeps memory for later that queries have freed: they must not be blamed for that.
        self._return_freed()
        allocated = self._allocated()
        if allocated <= self._limit:
            return
        if largest is not None and to_blame:
            self._fail(largest, allocated)
        else:
            self._warned = now_ns
            _log.warning(
                "the engine has allocated more than its limit, and no query holds much of it",
                extra={"fields": {"allocated": allocated, "limit": self._limit, "queries": len(active)}},
            )

    def _fail(self, query: RunningQuery, allocated: int) -> None:
        reason = (
            f"the engine has allocated {allocated} bytes, more than its limit of {self._limit}, and query "
            f"{query.id!r} holds most of them, {query.resident}: {held(query)}; "
            "use a smaller window or fewer groups, or start the server with a higher --engine-memory"
        )
        self._engine.fail(query, "", QueryFailed(reason))
