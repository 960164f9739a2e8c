"""Query registry: all registered queries by id and name, with the lookups that need no engine."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial

from mavstream_protocol.queries import QueryBackend
from mavstream_protocol.typed_plan import StreamShape
from mavstream_protocol.wire.resources import ActualState
from mavstream_server.core.errors import NotFound
from mavstream_server.core.namespace import Namespace
from mavstream_server.optimizer.monitor import is_watched
from mavstream_server.optimizer.service import Registered
from mavstream_server.optimizer.target_index import IndexedTarget
from mavstream_server.queries.importance import ClassImportance
from mavstream_server.queries.planning.validation import could_move
from mavstream_server.queries.query import Query


class QueryRegistry:
    """All registered queries, ended ones included."""

    def __init__(self, names: Namespace) -> None:
        self.names = names
        """The names of streams, tables and queries."""
        self._queries: dict[str, Query] = {}
        self._ids: dict[str, str] = {}  # by name
        self._order: list[str] = []  # ids in sorted order, for pages
        self._watched: dict[str, Registered] = {}
        self.results: dict[str, StreamShape] = {}
        """The results of queries as plans read them, by the name of the query."""
        self._readers: dict[str, dict[str, None]] = {}
        self.importance = ClassImportance()
        """How important the queries and the streams that they read are."""

    def __len__(self) -> int:
        return len(self._queries)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._queries

    def __iter__(self) -> Iterator[Query]:
        return iter(self._queries.values())

    # Adding and removing

    def enter(self, query: Query) -> None:
        """Add a query."""
        self._queries[query.id] = query
        self._ids[query.name] = query.id
        self.names.add("query", query.name, query.id)
        insort(self._order, query.id)
        self.note(query)

    def remove(self, id_: str) -> None:
        """Remove a query."""
        query = self._queries.pop(id_)
        del self._ids[query.name]
        self.names.remove("query", query.name)
        del self._order[bisect_right(self._order, id_) - 1]
        self._watched.pop(id_, None)
        self.results.pop(query.name, None)
        self._readers.pop(id_, None)
        self._note_reading(query, reads=False)
        self.importance.remove(id_)

    def note(self, query: Query) -> None:
        """Update what follows from a query's plan and state: its importance, and whether it is monitored.

        It is monitored while it can run and has targets or allows shedding.
        """
        self.importance.update(query)
        self._note_reading(query, reads=query.final is None)
        if query.plan is not None:
            self.results[query.name] = query.plan.results(query.id, derived=query.record.spec.derive)
        qos = query.record.spec.qos
        if query.final is None and not (query.scheduled or query.outside) and is_watched(qos):
            self._watched[query.id] = Registered(query.id, query.class_name, qos, partial(_could_move, query))
        else:
            self._watched.pop(query.id, None)

    def part(self, query: Query) -> None:
        """Forget what a query reads, before it gets another plan; `note` it then."""
        self._note_reading(query, reads=False)

    def _note_reading(self, query: Query, *, reads: bool) -> None:
        for id_ in query.upstream.values():
            found = self._readers.setdefault(id_, {})
            if reads:
                found[query.id] = None
            else:
                found.pop(query.id, None)

    # Lookup

    def readers(self, id_: str) -> list[Query]:
        """Return the queries that have not ended and read the results of a query themselves."""
        return [self._queries[one] for one in sorted(self._readers.get(id_, ()))]

    def upstream(self) -> list[Query]:
        """Return the queries whose results are read by others, which have not ended."""
        read = (self._queries.get(id_) for id_, readers in self._readers.items() if readers)
        return [query for query in read if query is not None]

    def find(self, id_: str) -> Query | None:
        """Return a query by its id, or None."""
        return self._queries.get(id_)

    def id_of(self, ref: str) -> str:
        """Return the id of a query with a name; anything else is returned as it is."""
        return self._ids.get(ref, ref)

    def get(self, ref: str) -> Query:
        """Return a query by its id or name, which are never the same; raises NotFound."""
        query = self._queries.get(self.id_of(ref))
        if query is None:
            raise NotFound.query(ref, self._ids)
        return query

    def select(
        self,
        after: str | None,
        limit: int,
        class_: str | None = None,
        state: ActualState | None = None,
        *,
        placed: bool = False,
        backend: QueryBackend | None = None,
    ) -> list[Query]:
        """Return up to `limit` queries after an id, ordered by id; `placed` selects those in the engine."""
        found: list[Query] = []
        for index in range(0 if after is None else bisect_right(self._order, after), len(self._order)):
            query = self._queries[self._order[index]]
            if (placed and not query.placed) or backend not in (None, query.record.spec.backend):
                continue
            if class_ in (None, query.class_name) and state in (None, query.state):
                found.append(query)
                if len(found) == limit:
                    break
        return found

    def states(self) -> dict[str, int]:
        """Return the number of queries by state."""
        return dict(Counter(query.state.value for query in self))

    def watched(self) -> Collection[Registered]:
        """Return the queries that can run and have targets or allow shedding."""
        return self._watched.values()

    def class_sizes(self) -> Mapping[str, int]:
        """Return the number of queries that can run, by class."""
        return Counter(query.class_name for query in self if query.final is None and not query.scheduled)

    def unplaced(self, priorities: Mapping[str, int]) -> list[Query]:
        """Return the queries that are to run and are in no engine, by descending priority of their class."""
        waiting = [
            query
            for query in self
            if query.final is None and not (query.placed or query.scheduled or query.outside)
        ]
        waiting.sort(key=lambda query: (-priorities.get(query.class_name, 0), query.record.created_us))
        return waiting

    def targets(self) -> Iterator[IndexedTarget]:
        """Yield the targets of running queries."""
        for query in self:
            if query.placed and not query.paused:
                yield IndexedTarget(query.id, query.class_name, query.record.spec.qos)

    def joining(self, table: str) -> list[Query]:
        """Return the queries that join a stored table and have not ended."""
        return [query for query in self if table in query.tables]


def _could_move(query: Query) -> bool:
    return query.plan is not None and could_move(query.record.spec, query.plan)
