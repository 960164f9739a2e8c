"""The server's certificate: checked before the start, and replaced while the server runs."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from mavstream_protocol.errors import MavstreamError

_LOG = logging.getLogger("mavstream.server")


class CannotServe(MavstreamError):
    """Raised if the server cannot start."""

    code = "cannot_serve"


class Certificate:
    """Files of a certificate chain and its key; raises CannotServe if they cannot be used."""

    def __init__(self, chain: Path, key: Path | None) -> None:
        self._chain = chain
        self._key = key
        try:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        except OSError as error:  # also those of ssl
            raise CannotServe(
                f"the certificate '{chain}' with key '{key}' cannot be used ({error.strerror or error}): "
                "give PEM files that belong together, the key without a passphrase"
            ) from None

    def reload(self, context: ssl.SSLContext) -> None:
        """Load the files again for new connections; if they cannot be used, the previous ones stay in use."""
        try:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(context)
        except OSError as error:
            _LOG.error(
                "certificate not reloaded, the previous one stays in use", extra={"reason": str(error)}
            )
        else:
            _LOG.info("certificate reloaded")

    def _load(self, context: ssl.SSLContext) -> None:
        # Without a function for the passphrase, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(self._chain, self._key, password=lambda: "")
