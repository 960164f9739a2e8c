"""The server process: locks its data directory, serves until a signal, and stops gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from functools import partial
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import uvicorn

from mavstream_server.api.access.http_protocol import BoundedHttp
from mavstream_server.api.access.open_sockets import OpenSockets
from mavstream_server.api.access.tls import CannotServe, Certificate
from mavstream_server.api.app import create_app, reload_tokens, say_goodbye
from mavstream_server.api.logging import LogFormat, configure_logging
from mavstream_server.api.websockets.stamping import StampedWebSocket
from mavstream_server.core.storage.data_directory import locked
from mavstream_server.core.storage.data_format import FORMAT_VERSION, open_format
from mavstream_server.supervisor.scheduler_choice import check_policy

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi import FastAPI

    from mavstream_server.core.settings import Settings
    from mavstream_server.supervisor.engine_child import EngineChild

_LOG = logging.getLogger("mavstream.server")
_STOP_SECONDS = 3
"""Time that connections get to finish when the server stops, in seconds."""


_PROBES = 64
"""Connections beyond those that have work: health checks, and requests that are refused as too many."""


def run(settings: Settings, log: LogFormat = "json", child: EngineChild | None = None) -> None:
    """Serve until SIGTERM or SIGINT; returns after a graceful stop. Raises CannotServe, DataUnusable.

    `child` is the engine's process, if it was started already; it ends with this one in any case.
    """
    configure_logging(log)
    check_policy(settings)
    _raise_file_limit()
    sys.meta_path.insert(0, _WithoutPandas())
    with locked(settings.data), _bound(settings.host, settings.port) as listener:
        _open_format(settings.data)
        tls = None if settings.tls_cert is None else Certificate(settings.tls_cert, settings.tls_key)
        app = create_app(settings, child)
        sockets = OpenSockets(settings.max_connections + settings.reserved_connections + _PROBES)
        config = uvicorn.Config(
            app,
            loop="uvloop",
            # uvicorn's own `limit_concurrency` would refuse health checks, too.
            http=cast(Any, partial(BoundedHttp, settings=settings, sockets=sockets)),
            ws=cast(
                Any, partial(StampedWebSocket, send_timeout=settings.send_timeout / 1e6, sockets=sockets)
            ),
            ws_max_size=settings.max_frame_bytes,
            # Messages are binary or short; compression costs more than it saves on loopback or a LAN.
            ws_per_message_deflate=False,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
            timeout_keep_alive=30,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        url = f"{'https' if tls else 'http'}://{shown}:{port}"
        server = _Server(config, app, url, tls, settings.header_timeout / 1e6)
        server.run(sockets=[listener])
        if not server.started:
            raise CannotServe("the server did not start; the log says why")
        _LOG.info("stopped")


def _open_format(data: Path) -> None:
    found = open_format(data)
    if found.version != FORMAT_VERSION:
        _LOG.info(
            "data directory upgraded",
            extra={"data": str(data), "from": found.version, "to": FORMAT_VERSION},
        )


class _WithoutPandas(MetaPathFinder):
    """Import hook that hides pandas.

    If it is installed, pyarrow imports it when it first converts a list: half a second during operation, and
    40 MB, for nothing that a server uses.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a server does without pandas", name=fullname)


_GC_THRESHOLDS = 20_000, 20, 20
"""Garbage collector thresholds: frames are freed by reference counting; a collection takes ms."""


class _Server(uvicorn.Server):
    """uvicorn server that notifies websockets before it stops, and exits with 0 after a signal."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: FastAPI,
        url: str,
        certificate: Certificate | None,
        handshake_timeout: float,
    ) -> None:
        """`handshake_timeout` is how long a client may take for a TLS handshake, in seconds."""
        super().__init__(config)
        self._handshake_timeout = handshake_timeout
        self._certificate = certificate
        self._app = app
        self._url = url
        self._port = int(url.rpartition(":")[2])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn would leave a TLS handshake 60 s, in which it counts as no connection yet.
        await super().startup([])
        loop = asyncio.get_running_loop()
        for listener in sockets or ():
            timeout = None if self.config.ssl is None else self._handshake_timeout
            self.servers.append(
                await loop.create_server(
                    self._protocol,
                    sock=listener,
                    ssl=self.config.ssl,
                    backlog=self.config.backlog,
                    ssl_handshake_timeout=timeout,
                )
            )
        # Exclude startup objects from collections, which would take 60 ms each during operation. There is
        # next to no garbage among them, so that it is not collected first.
        gc.freeze()
        gc.enable()  # the command disables it while modules are loaded
        gc.set_threshold(*_GC_THRESHOLDS)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
        if self.started:
            _LOG.info("listening", extra={"url": self._url, "pid": os.getpid()})
            self._app.state.page.start(self._port)

    def _protocol(self) -> asyncio.Protocol:
        # `http` of the configuration is a partial, which uvicorn's types do not describe.
        made: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = made(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def _reload(self) -> None:
        if self._certificate is not None and self.config.ssl is not None:
            self._certificate.reload(self.config.ssl)
        self._reloading = asyncio.create_task(reload_tokens(self._app))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _LOG.info("stopping")
        for server in self.servers:
            server.close()
        await self._app.state.page.stop()
        await say_goodbye(self._app)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn raises the signal again after the stop, so the exit status would be "killed".
        def stop(number: int, frame: FrameType | None) -> None:
            self.force_exit = self.should_exit and number == signal.SIGINT
            self.should_exit = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """Bind the socket before anything is started, so that a port in use is reported as one clear error."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise CannotServe(
            f"cannot listen on {host} port {port}: {error.strerror}; give another --host or --port"
        ) from None
    with listener:
        yield listener


def _raise_file_limit() -> None:
    # Two files per log and one per connection soon exceed the usual limit of 1024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
