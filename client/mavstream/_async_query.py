"""Queries of an asyncio client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mavstream._results.async_results import AsyncResults
from mavstream._results.subscription import After, OnGap
from mavstream_protocol.admission import AdmissionEstimate
from mavstream_protocol.wire.plans import QueryPlan
from mavstream_protocol.wire.qos import QosReport
from mavstream_protocol.wire.resources import PulledResults, QueryInfo
from mavstream_protocol.wire.results import OnLag

if TYPE_CHECKING:
    from mavstream._async_client import AsyncClient


class AsyncQuery:
    """A query on the server, known by its id or its name."""

    def __init__(self, client: AsyncClient, id_: str, admission: AdmissionEstimate | None = None) -> None:
        self._client = client
        self.id = id_
        """The id, or the name that was given to `client.query`: the server takes both."""
        self.admission = admission
        """The server's estimate when the query was submitted through this handle; None otherwise."""

    def __repr__(self) -> str:
        return f"AsyncQuery({self.id!r})"

    async def info(self) -> QueryInfo:
        """Return its specification, state and metrics."""
        return await self._client._transport.run(self._client._calls.query_info(self.id))

    async def pause(self) -> QueryInfo:
        """Pause it: it reads no rows until it is resumed."""
        return await self._change(state="paused")

    async def resume(self, skip_to: Mapping[str, int] | None = None) -> QueryInfo:
        """Resume it after a pause; a query that has failed goes on at the positions in `skip_to`, by stream.

        A failed query goes on with empty state. Streams that are not named go on at their end.
        """
        if skip_to is None:
            return await self._change(state="running")
        return await self._change(state="running", skip_to=dict(skip_to))

    async def stop(self) -> QueryInfo:
        """Stop it; its results are kept."""
        return await self._change(state="stopped")

    async def set_class(self, name: str) -> QueryInfo:
        """Move it to another class."""
        return await self._change(class_=name)

    async def update(self, **changes: Any) -> QueryInfo:
        """Change `start_at` while it is scheduled, `stop_at`, `qos`, `class_` or `state`.

        What is not given stays as it is; None removes a time, or all targets.
        """
        return await self._change(**changes)

    async def delete(self) -> None:
        """Stop it and delete its results."""
        await self._client._transport.run(self._client._calls.delete_query(self.id))

    async def plan(self) -> QueryPlan:
        """Return its plan as it runs: operators with states and capacities, paths, segments."""
        return await self._client._transport.run(self._client._calls.query_plan(self.id))

    async def sql(self, *, running: bool = False) -> str:
        """Return its plan as SQL, as it was registered, or with `running` as it runs now."""
        found = await self._client._transport.run(self._client._calls.query_sql(self.id))
        return found.running if running and found.running is not None else found.sql

    async def qos(self) -> QosReport:
        """Return its QoS targets with their measured values and states, and the actions taken for it."""
        return await self._client._transport.run(self._client._calls.qos(self.id))

    async def pull(self, after: int | None = None, limit: int | None = None) -> PulledResults:
        """Return a part of its results in one request."""
        return await self._client._transport.run(self._client._calls.pull(self.id, after, limit))

    def results(
        self,
        after: After = None,
        *,
        timeout: float | None = None,
        on_gap: OnGap = "warn",
        on_lag: OnLag | str = OnLag.GAP,
        datetimes: bool = False,
    ) -> AsyncResults:
        """Return its results; see `AsyncClient.results`."""
        return self._client.results(
            self, after, timeout=timeout, on_gap=on_gap, on_lag=on_lag, datetimes=datetimes
        )

    async def _change(self, **changes: Any) -> QueryInfo:
        return await self._client._transport.run(self._client._calls.change(self.id, changes))
