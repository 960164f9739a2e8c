"""The namespace of a server: streams, tables and queries share it, so that a name means one object."""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Literal, NamedTuple

from mavstream_server.core.errors import Conflict

_LOG = logging.getLogger("mavstream.names")
_LONGEST = 64

NamedKind = Literal["stream", "table", "query"]
_RULE = "streams, tables and queries share their names"


class Named(NamedTuple):
    """The object that has a name."""

    kind: NamedKind
    id: str
    """The id of a query; of streams and tables the name."""

    def __str__(self) -> str:
        return f"{self.kind} '{self.id}'"


class Namespace:
    """The names that are in use. The stores of the objects keep it up to date; it stores nothing itself."""

    def __init__(self) -> None:
        self._holders: dict[str, list[Named]] = {}
        self._suffixes: dict[str, int] = {}  # by name: the last suffix that was given

    def holder(self, name: str) -> Named | None:
        """Return the object of a name, or None if the name is free."""
        holders = self._holders.get(name)
        return None if holders is None else holders[0]

    def require_free(self, kind: NamedKind, name: str) -> None:
        """Raise Conflict if a new object of a kind cannot have a name, because another object has it."""
        holder = self.holder(name)
        if holder is None:
            return
        if holder.kind == "query":
            todo = f"choose another name, or delete query '{holder.id}' first"
        else:
            todo = "choose another name"
        if holder.kind == kind == "query":
            todo = f"choose another name, replace it with PUT /v1/queries/{name}, or delete it first"
        if holder.kind == kind:
            raise Conflict(f"{holder} exists already as '{name}': {todo}", code=f"{kind}_exists")
        raise Conflict(
            f"{kind} '{name}' cannot have this name, which {holder} has ({_RULE}): {todo}", code="name_taken"
        )

    def add(self, kind: NamedKind, name: str, id_: str | None = None) -> None:
        """Note the name of an object.

        Objects of earlier releases may have the same name: each is found by its own kind, and this is logged.
        """
        named = Named(kind, name if id_ is None else id_)
        holders = self._holders.setdefault(name, [])
        if holders:
            fields = {"object": str(named), "other": str(holders[0])}
            _LOG.warning("two objects have one name: delete one of them", extra=fields)
        holders.append(named)

    def remove(self, kind: NamedKind, name: str) -> None:
        """Free the name of an object that is deleted."""
        holders = [one for one in self._holders.pop(name, ()) if one.kind != kind]
        if holders:
            self._holders[name] = holders

    def free(self, name: str) -> str:
        """Return the name if it is free, otherwise a free one with a suffix."""
        if name not in self._holders:
            self._suffixes.pop(name, None)
            return name
        # Continued behind the last one, since trying all suffixes for each name would be quadratic.
        found, self._suffixes[name] = suffixed(name, self._holders, self._suffixes.get(name, 1) + 1)
        return found


def suffixed(name: str, taken: Container[str], first: int = 2) -> tuple[str, int]:
    """Return the first name that is not taken, `name_2`, `name_3` and so on, and its number.

    Names have at most 64 characters.
    """
    number = first
    while (found := name[: _LONGEST - len(str(number)) - 1] + f"_{number}") in taken:
        number += 1
    return found, number
