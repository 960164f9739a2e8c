"""The process of the page: listens, serves until a signal, and ends with the server that started it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from mavstream_page.application import create_app


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the page is served, and for which server."""

    url: str
    """Address of the server."""
    host: str
    port: int
    allow_host: tuple[str, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None


def run(options: Listening, *, child: bool = False) -> None:
    """Serve until SIGTERM or SIGINT; raises OSError if the port cannot be bound.

    As a child it prints its port to standard output when it listens, and ends when standard input does.
    """
    family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        port = int(listener.getsockname()[1])
        config = uvicorn.Config(
            create_app(options.url, options.host, options.allow_host, secure=options.tls_cert is not None),
            log_level="warning",
            server_header=False,
            access_log=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
            ssl_certfile=options.tls_cert,
            ssl_keyfile=options.tls_key,
        )
        server = _Server(config, port, child)
        if child:
            threading.Thread(target=_follow, daemon=True).start()
        server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn server that says where it listens."""

    def __init__(self, config: uvicorn.Config, port: int, child: bool) -> None:
        super().__init__(config)
        self._port = port
        self._child = child

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            scheme = "https" if self.config.is_ssl else "http"
            host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
            print(
                self._port if self._child else f"The page is at {scheme}://{host}:{self._port}/", flush=True
            )


def _follow() -> None:
    """End this process when its parent has ended."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
