"""Classes of queries: their priorities, and the removal of those that no query needs."""

from __future__ import annotations

from collections.abc import Mapping

from mavstream_protocol.classes import DEFAULT_CLASS
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.errors import Conflict, NotFound, listed
from mavstream_server.queries.registry import QueryRegistry


class ClassRegistry:
    """The classes of the catalog, as the registered queries use them."""

    def __init__(self, catalog: Catalog, registry: QueryRegistry) -> None:
        self._catalog = catalog
        self._registry = registry

    def has(self, name: str) -> bool:
        """Return whether there is a class with this name."""
        try:
            self._catalog.class_(name)
        except (NotFound, UnicodeEncodeError):
            return False
        return True

    def priorities(self) -> Mapping[str, int]:
        """Return the priorities of the classes."""
        return {record.spec.name: record.spec.priority for record in self._catalog.classes()}

    def remove(self, name: str, version: int | None = None) -> None:
        """Remove a class; raises NotFound, WrongVersion, and Conflict if queries in it have not ended."""
        self._catalog.class_(name)
        if name == DEFAULT_CLASS:
            raise Conflict(
                f"class '{name}' always exists, for queries that name none: change its priority instead",
                code="default_class",
            )
        if users := [
            query.name for query in self._registry if query.final is None and query.class_name == name
        ]:
            raise Conflict(
                f"class '{name}' has queries that have not ended, {listed(sorted(users))}: move them to "
                "another class, or stop or remove them first",
                code="class_in_use",
            )
        self._catalog.remove_class(name, version)
        self._registry.importance.remove_class(name)

    def set_priority(self, name: str, priority: int) -> None:
        """Have ingest and delivery follow the priority of a class; the engine is told by the caller."""
        self._registry.importance.set_priority(name, priority)
