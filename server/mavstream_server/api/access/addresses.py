"""Allow-lists of the `Host` and `Origin` headers: which names the server has, which web pages may use it.

The host check defeats DNS rebinding: a page of any site may let its own name point to a loopback address,
but the browser still sends that name as `Host`. The origin check defeats pages that send requests or open
websockets to a server of another site.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from mavstream_server.core.settings import Settings, is_loopback

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/@\s]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_ORIGIN = re.compile(r"https?://([^/@\s]+)", re.IGNORECASE)


class AllowedAddresses:
    """The hosts and origins that a server accepts.

    Loopback names and the bound address are always allowed as hosts, and loopback pages as origins. A server
    bound to all addresses accepts every IP address as its host, since rebinding needs a name.
    """

    def __init__(self, settings: Settings) -> None:
        self._bound = settings.host.strip("[]").lower()
        self._any_address = _is_unspecified(self._bound)
        self._hosts = _Patterns(settings.allow_host)
        self._origins = frozenset(settings.allow_origin)

    def allows_host(self, header: str) -> bool:
        """Return whether a `Host` header names this server; its port is ignored."""
        name = host_name(header)
        if name is None:
            return False
        if is_loopback(name) or name == self._bound or name in self._hosts:
            return True
        return self._any_address and _is_address(name)

    def allows_origin(self, origin: str, host: str) -> bool:
        """Return whether a page of an origin may use the server; `host` is the `Host` header."""
        if "*" in self._origins or origin.lower() in self._origins:
            return True
        found = _ORIGIN.fullmatch(origin)
        if found is None:
            return False
        name = host_name(found[1])
        return found[1].lower() == host.lower() or (name is not None and is_loopback(name))


def host_name(header: str) -> str | None:
    """Return the name or address in `NAME:PORT`, in lower case without brackets; None if it is malformed."""
    found = _HOST.fullmatch(header.strip())
    return None if found is None else found[1].strip("[]").lower().rstrip(".")


class _Patterns:
    """Names that are allowed: exactly, below a domain (`*.example.org`), or all (`*`)."""

    def __init__(self, patterns: Iterable[str]) -> None:
        given = [pattern.lower() for pattern in patterns]
        self._all = "*" in given
        self._exact = frozenset(given)
        self._suffixes = tuple(pattern[1:] for pattern in given if pattern.startswith("*."))

    def __contains__(self, name: str) -> bool:
        return self._all or name in self._exact or name.endswith(self._suffixes)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_unspecified(host: str) -> bool:
    # An empty host binds to all addresses, too.
    return not host or (_is_address(host) and ipaddress.ip_address(host).is_unspecified)
