"""Which `Host` headers name a server.

The check defeats DNS rebinding: a page of any site may let its own name point to a loopback address, but the
browser still sends that name as `Host`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/@\s]+)(?::[0-9]{1,5})?", re.IGNORECASE)


class AllowedHosts:
    """The hosts that a server accepts.

    Loopback names and the bound address are always allowed. A server bound to all addresses accepts every IP
    address as its host, since rebinding needs a name.
    """

    def __init__(self, bound: str, patterns: Iterable[str]) -> None:
        """`patterns` are `NAME`, `*.DOMAIN` or `*`."""
        self._bound = bound.strip("[]").lower()
        self._any_address = _is_unspecified(self._bound)
        given = [pattern.lower() for pattern in patterns]
        self._all = "*" in given
        self._exact = frozenset(given)
        self._suffixes = tuple(pattern[1:] for pattern in given if pattern.startswith("*."))

    def allows(self, header: str) -> bool:
        """Return whether a `Host` header names the server; its port is ignored."""
        name = host_name(header)
        if name is None:
            return False
        if is_loopback(name) or name == self._bound or self._lists(name):
            return True
        return self._any_address and _is_address(name)

    def _lists(self, name: str) -> bool:
        return self._all or name in self._exact or name.endswith(self._suffixes)


def host_name(header: str) -> str | None:
    """Return the name or address in `NAME:PORT`, in lower case without brackets; None if it is malformed."""
    found = _HOST.fullmatch(header.strip())
    return None if found is None else found[1].strip("[]").lower().rstrip(".")


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address; of names, only localhost is."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_unspecified(host: str) -> bool:
    # An empty host binds to all addresses, too.
    return not host or (_is_address(host) and ipaddress.ip_address(host).is_unspecified)
