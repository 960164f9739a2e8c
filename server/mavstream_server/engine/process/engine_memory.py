"""The memory limit of an engine process: the query that holds most fails before the system ends them all."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mavstream_server.core.machine import private_memory
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.memory_limit import held
from mavstream_server.engine.process.allocator import return_freed_memory
from mavstream_server.operators.operator import QueryFailed

_log = logging.getLogger(__name__)

_EVERY = 500_000_000  # ns between two checks
_NOTHING_TO_GAIN = 10_000_000_000  # ns until the next check if no query was to blame
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
        self._next_check = 0

    def check(self, now_ns: int) -> None:
        """Fail the query that holds most if the process has allocated more than its limit."""
        if self._limit is None or now_ns < self._next_check:
            return
        self._next_check = now_ns + _EVERY
        if self._allocated() <= self._limit:
            return
        # The allocator keeps memory for later that queries have freed: they must not be blamed for that.
        self._return_freed()
        allocated = self._allocated()
        if allocated > self._limit and not self._fail_largest(allocated, self._limit):
            self._next_check = now_ns + _NOTHING_TO_GAIN

    def _fail_largest(self, allocated: int, limit: int) -> bool:
        """Fail the query that holds most; returns whether there is one that holds much."""
        active = [query for query in self._engine.queries.values() if query.active]
        largest = max(active, key=lambda query: query.resident, default=None)
        if largest is None or largest.resident * _SHARE < limit:
            _log.warning(
                "the engine has allocated more than its limit, and no query holds much of it",
                extra={"fields": {"allocated": allocated, "limit": limit, "queries": len(active)}},
            )
            return False
        reason = (
            f"the engine has allocated {allocated} bytes, more than its limit of {limit}, and query "
            f"{largest.id!r} holds most of them, {largest.resident}: {held(largest)}; "
            "use a smaller window or fewer groups, or start the server with a higher --engine-memory"
        )
        self._engine.fail(largest, "", QueryFailed(reason))
        return True
