"""Result rates: how many results per second queries give to those that read them, measured or predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mavstream_server.optimizer.admission.cost_history import CostHistory
from mavstream_server.optimizer.admission.load import Arrivals, SlidingLoad
from mavstream_server.queries.query import Query

_NOTHING = Arrivals(0.0, 0.0)


class ResultRates:
    """The rates at which rows get to queries: those of streams, and of results that other queries give.

    The rate of results is measured while queries read them. Otherwise it is predicted from the rates of what
    the query reads itself, by what is known of its operators.
    """

    def __init__(self, load: SlidingLoad, history: CostHistory, find: Callable[[str], Query | None]) -> None:
        """`find` returns the query with a name."""
        self._load = load
        self._history = history
        self._find = find

    def rates(self, names: Iterable[str]) -> dict[str, Arrivals]:
        """Return rows and frames per second by the name of a stream or query; unknown ones are left out."""
        known: dict[str, Arrivals | None] = {}
        found = {name: self._rate(name, known) for name in names}
        return {name: arrivals for name, arrivals in found.items() if arrivals is not None}

    def _rate(self, name: str, known: dict[str, Arrivals | None]) -> Arrivals | None:
        if name not in known:
            known[name] = None
            query = self._find(name)
            known[name] = self._load.arrivals(name) if query is None else self._of_results(query, known)
        return known[name]

    def _of_results(self, query: Query, known: dict[str, Arrivals | None]) -> Arrivals | None:
        plan = query.plan
        if plan is None or query.final is not None:
            return None
        inputs = {source.stream: self._rate(source.stream, known) for source in plan.sources}
        read = {name: one for name, one in inputs.items() if one is not None}
        rows = (self._load.arrivals(query.name) or _NOTHING).rows
        if not rows:
            # Not measured, or its results are rarer than measurements.
            if query.large or len(read) < len(inputs):
                return None
            rows = self._history.operators(plan, read).rates[plan.root]
        # A turn over a frame gives at most one frame of results.
        return Arrivals(rows, min(rows, sum(min(one.frames, one.rows) for one in read.values())))

    def stages(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the classes of the queries that rows pass before they get to these, the longest way."""
        known: dict[str, tuple[str, ...]] = {}
        return max((self._stages(name, known) for name in names), key=len, default=())

    def _stages(self, name: str, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        if name not in known:
            query = self._find(name)
            below: tuple[str, ...] = ()
            if query is not None and query.plan is not None:
                read = (self._stages(source.stream, known) for source in query.plan.sources)
                below = (*max(read, key=len), query.class_name)
            known[name] = below
        return known[name]
