"""Queries by the names that statements use."""

from __future__ import annotations

from mavstream_server.api.services import Services
from mavstream_server.core.errors import Conflict, NotFound


def id_of(name: str, parts: Services) -> str:
    """Return the id of a query with this name or id; raises NotFound, Conflict if several have the name."""
    if name in parts.queries.registry:
        return name
    found = [query.id for query in parts.queries.registry if query.record.spec.name == name]
    if not found:
        raise NotFound.query(name)
    if len(found) > 1:
        raise Conflict(
            f"{len(found)} queries are named '{name}': use the id of one: {', '.join(sorted(found)[:5])}",
            code="ambiguous_name",
        )
    return found[0]
