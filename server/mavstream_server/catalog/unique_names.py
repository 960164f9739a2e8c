"""The upgrade of a catalog whose queries may have the same names: later ones get a suffix."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection

from mavstream_server.core.namespace import suffixed

_LOG = logging.getLogger("mavstream.catalog")


def make_names_unique(connection: sqlite3.Connection, tables: Collection[str]) -> None:
    """Rename queries whose name a stream, a table or an older query has; their ids stay."""
    taken = {name for (name,) in connection.execute("SELECT name FROM streams")}.union(tables)
    names = connection.execute(
        "SELECT id, json_extract(spec, '$.name') FROM queries "
        "WHERE json_valid(spec) AND json_type(spec, '$.name') = 'text' ORDER BY created_us, id"
    ).fetchall()
    known = taken.union(name for _, name in names)
    last: dict[str, int] = {}
    for id_, name in names:
        if name in taken:
            new, last[name] = suffixed(name, known, last.get(name, 1) + 1)
            connection.execute(
                "UPDATE queries SET spec = json_set(spec, '$.name', ?) WHERE id = ?", (new, id_)
            )
            _LOG.warning(
                "query renamed, as its name was taken", extra={"query": id_, "old": name, "new": new}
            )
            name = new
            known.add(name)
        taken.add(name)
