"""The registry of producers: their permanent numbers, owners, and when they were last used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mavstream_server.catalog.database import Database
from mavstream_server.catalog.owners import Owners
from mavstream_server.core.errors import Forbidden, NotFound, TooMany
from mavstream_server.core.principal import Principal

_LAST_NUMBER = "last_producer"


class ProducerRegistry:
    """All producers that ever fed a server and were not removed since.

    A number is never given twice: the logs hold frames of removed producers, too.
    """

    def __init__(self, database: Database, owners: Owners, most: int, now_us: Callable[[], int]) -> None:
        self._database = database
        self._owners = owners
        self._most = most
        self._now_us = now_us
        self._numbers: dict[str, int] = dict(database.run("SELECT name, id FROM producers").fetchall())
        self._names = {number: name for name, number in self._numbers.items()}
        row = database.run("SELECT value FROM settings WHERE name = ?", _LAST_NUMBER).fetchone()
        self._last = max((0 if row is None else int(row[0]), *self._names))
        self._claims: dict[str, str | None] = {}  # owners of names that are connected and may be new
        # Producers of earlier releases, whose last use is not known, count as used now.
        database.run("UPDATE producers SET used_us = ? WHERE used_us = 0", now_us())

    @property
    def names(self) -> Mapping[str, int]:
        """The numbers of all producers by name."""
        return self._numbers

    def number(self, name: str) -> int | None:
        """Return the number of a producer, or None if it never sent rows."""
        return self._numbers.get(name)

    def name(self, number: int) -> str:
        """Return the name of a producer by its number."""
        return self._names[number]

    def claim(self, name: str, principal: Principal) -> None:
        """Have a producer that connects belong to somebody; raises Forbidden if it is somebody else's.

        A new name is stored with its first rows only.
        """
        self.check(name, principal)
        self._claims[name] = principal.name

    def release(self, name: str) -> None:
        """End the claim of a producer that has disconnected."""
        self._claims.pop(name, None)

    def check(self, name: str, principal: Principal) -> None:
        """Raise Forbidden if a producer belongs to somebody else."""
        owner = self.owner(name)
        if not principal.may_change(owner):
            raise Forbidden(
                f"producer '{name}' belongs to token '{owner}', and this is token '{principal.name}': "
                "use another name"
            )

    def owner(self, name: str) -> str | None:
        """Return the owner of a producer; None if it belongs to all, or is new."""
        return self._owners.of("producer", name) if name in self._numbers else self._claims.get(name)

    def register(self, name: str, owner: str | None = None) -> int:
        """Return the permanent number of a producer, from 1; raises TooMany for a new one above the limit."""
        number = self._numbers.get(name)
        if number is not None:
            return number
        if len(self._numbers) >= self._most:
            raise TooMany(
                f"producer '{name}' is new and the limit of {self._most} producers is reached: use the name "
                "of a known one, remove one with 'mavstream producer delete', or raise "
                "MAVSTREAM_MAX_PRODUCERS",
                code="too_many_producers",
            )
        number = self._last + 1
        with self._database.transaction():
            self._database.run(
                "INSERT INTO producers (id, name, used_us) VALUES (?, ?, ?)", number, name, self._now_us()
            )
            self._owners.set("producer", name, self._claims.get(name, owner))
        self._last = number
        self._numbers[name], self._names[number] = number, name
        return number

    def used(self, names: Iterable[str]) -> None:
        """Store that producers are used now."""
        now = self._now_us()
        with self._database.transaction():
            self._database.run_many(
                "UPDATE producers SET used_us = ? WHERE name = ?", [(now, name) for name in names]
            )

    def last_used(self) -> dict[str, int]:
        """Return when each producer was last used, in microseconds, to about a minute."""
        return dict(self._database.run("SELECT name, used_us FROM producers").fetchall())

    def unused_since(self, time_us: int) -> list[str]:
        """Return the producers that were not used since a time."""
        rows = self._database.run("SELECT name FROM producers WHERE used_us < ?", time_us)
        return [name for (name,) in rows]

    def remove(self, name: str) -> None:
        """Remove a producer with its sequences; one that comes back starts anew. Raises NotFound."""
        number = self._numbers.get(name)
        if number is None:
            raise NotFound.producer(name, self._numbers)
        with self._database.transaction():
            self._database.run("DELETE FROM producers WHERE id = ?", number)
            self._database.run("DELETE FROM sequences WHERE producer = ?", number)
            self._owners.remove("producer", name)
            self._database.run("INSERT OR REPLACE INTO settings VALUES (?, ?)", _LAST_NUMBER, str(self._last))
        del self._numbers[name], self._names[number]
