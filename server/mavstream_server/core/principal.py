"""Principals: who makes a request, and what they may use."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from mavstream_protocol.tokens import Role, TokenQuotas


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a token. `name` is None on a server without tokens, where everybody may do everything."""

    name: str | None
    role: Role
    streams: tuple[str, ...] = ("*",)
    classes: tuple[str, ...] = ("*",)
    quotas: TokenQuotas = field(default_factory=TokenQuotas)

    @property
    def is_admin(self) -> bool:
        """Whether everything is allowed."""
        return self.role is Role.ADMIN

    @property
    def uses_all_streams(self) -> bool:
        """Whether no stream is excluded."""
        return self.is_admin or "*" in self.streams

    def may_use_stream(self, name: str) -> bool:
        """Return whether a stream of that name may be created, fed, completed and queried."""
        return self.uses_all_streams or any(fnmatchcase(name, pattern) for pattern in self.streams)

    def may_use_class(self, name: str) -> bool:
        """Return whether queries of the class may be registered."""
        return self.is_admin or any(fnmatchcase(name, pattern) for pattern in self.classes)

    def may_change(self, owner: str | None) -> bool:
        """Return whether an object of an owner may be changed; one without an owner belongs to all."""
        return self.is_admin or owner is None or owner == self.name


ANYBODY = Principal(None, Role.ADMIN)
"""Whoever makes requests to a server without tokens."""
