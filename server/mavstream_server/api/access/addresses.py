"""Allow-lists of the `Host` and `Origin` headers: which names the server has, which web pages may use it.

The host check defeats DNS rebinding (`mavstream_protocol.hosts`). The origin check defeats pages that send
requests or open websockets to a server of another site.
"""

from __future__ import annotations

import re

from mavstream_protocol.hosts import AllowedHosts, host_name, is_loopback
from mavstream_server.core.settings import Settings

_ORIGIN = re.compile(r"https?://([^/@\s]+)", re.IGNORECASE)


class AllowedAddresses:
    """The hosts and origins that a server accepts; loopback pages are always allowed as origins."""

    def __init__(self, settings: Settings) -> None:
        self._hosts = AllowedHosts(settings.host, settings.allow_host)
        self._origins = frozenset(settings.allow_origin)

    def allows_host(self, header: str) -> bool:
        """Return whether a `Host` header names this server; its port is ignored."""
        return self._hosts.allows(header)

    def allows_origin(self, origin: str, host: str) -> bool:
        """Return whether a page of an origin may use the server; `host` is the `Host` header."""
        if "*" in self._origins or origin.lower() in self._origins:
            return True
        found = _ORIGIN.fullmatch(origin)
        if found is None:
            return False
        name = host_name(found[1])
        return found[1].lower() == host.lower() or (name is not None and is_loopback(name))
