"""Changes of a query while it runs: class, weight, share that is shed, stop time, targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mavstream_protocol.expressions.typed import Expression
from mavstream_server.engine.policy_host import PolicyHost
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sharing.sharing import QuerySharing
from mavstream_server.engine.states import IllegalMove
from mavstream_server.engine.stop_times import StopTimes, check_stop
from mavstream_server.operators.source import Source


class RunningQueryChanges:
    """Changes active queries by id; each raises UnknownObject, and IllegalMove if the query has ended."""

    def __init__(
        self,
        query: Callable[[str], RunningQuery],
        policy_host: PolicyHost,
        sharing: QuerySharing,
        stop_times: StopTimes,
        share: Callable[[RunningQuery], None],
    ) -> None:
        """`share` lets a query share operators again, unless its plan is about to change."""
        self._query = query
        self._policy_host = policy_host
        self._sharing = sharing
        self._stop_times = stop_times
        self._share = share

    def reclass(self, id_: str, class_name: str) -> None:
        """Move a query to another class, effective immediately."""
        query = self._active(id_, "its class")
        self._sharing.keep_apart(query)
        self._policy_host.rearrange(query, lambda: setattr(query, "class_name", class_name))
        self._share(query)

    def weigh(self, id_: str, weight: int) -> None:
        """Set a query's weight within its class, for policies that use weights; the default is 1."""
        query = self._active(id_, "its weight")
        self._policy_host.rearrange(query, lambda: setattr(query, "weight", weight))
        self._sharing.reprioritised()

    def shed(self, id_: str, share: float) -> bool:
        """Drop this share (0 to 1) of the rows that a query reads from now on; 0 for none.

        Returns whether that changes anything.
        """
        query = self._active(id_, "what it sheds")
        if not share and all(source.shedder is None for source in query.network.sources):
            return False
        self._sharing.leave(query)
        for task in query.sources.values():
            task.work.shed(share)
        return True

    def stop_at(self, id_: str, time: int | None) -> None:
        """Set the arrival time (us) at which a query ends, None for no end; raises StopTimePassed."""
        query = self._active(id_, "its stop_at")
        self._sharing.keep_apart(query)
        try:
            check_stop(query, time)
            options = replace(query.request.options, stop_at=time)
            query.request = replace(query.request, options=options)
            for source in query.network.sources:
                source.stop_at(time)
            self._stop_times.watch(query)
        finally:
            self._share(query)

    def aim_at(self, id_: str, latency_target: int | None, utility: Mapping[str, Expression]) -> None:
        """Set a query's latency target (us), and the utility of its rows for load shedding, by stream."""
        query = self._active(id_, "its targets")
        options = replace(query.request.options, utility=utility)
        request = replace(query.request, latency_target=latency_target, options=options)
        self._policy_host.rearrange(query, lambda: setattr(query, "request", request))
        for node in query.request.plan.sources:
            source = query.network.operators[node.name]
            assert isinstance(source, Source)
            source.rank_by(utility.get(node.stream))
        self._sharing.retargeted(query)

    def _active(self, id_: str, what: str) -> RunningQuery:
        query = self._query(id_)
        if not query.active:
            raise IllegalMove(f"query {id_!r} is {query.state.value} and cannot change {what} any more")
        return query
