"""Running a server process: one per data directory, ready when it says so, stopped by a signal."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from mavstream_protocol.errors import MavstreamError
from mavstream_server.api.app import create_app, say_goodbye
from mavstream_server.api.logging import LogFormat, configure_logging
from mavstream_server.api.websockets.stamping import StampedWebSocket
from mavstream_server.supervisor.scheduler_choice import check_policy

if TYPE_CHECKING:
    from fastapi import FastAPI

    from mavstream_server.core.settings import Settings

_LOG = logging.getLogger("mavstream.server")
_STOP_SECONDS = 3
"""How long connections may take to finish after they were told."""


class CannotServe(MavstreamError):
    """The server cannot start here."""

    code = "cannot_serve"


def run(settings: Settings, log: LogFormat = "json") -> None:
    """Serve until SIGTERM or SIGINT; returns after a graceful stop. Raises CannotServe."""
    configure_logging(log)
    check_policy(settings)
    _raise_file_limit()
    sys.meta_path.insert(0, _WithoutPandas())
    with _locked(settings.data), _bound(settings.host, settings.port) as listener:
        app = create_app(settings)
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http="httptools",
            ws=StampedWebSocket,
            ws_max_size=settings.max_frame_bytes,
            # Frames are binary or short; compressing them costs more than loopback or a LAN gains.
            ws_per_message_deflate=False,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
            timeout_keep_alive=30,
        )
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        server = _Server(config, app, f"http://{shown}:{port}")
        server.run(sockets=[listener])
        if not server.started:
            raise CannotServe("the server did not start; the log says why")
        _LOG.info("stopped")


class _WithoutPandas(MetaPathFinder):
    """Says that there is no pandas.

    Where it is installed, pyarrow loads it with the first list that it makes an array of: half a second in
    the middle of work, and 40 MB, for nothing that a server uses.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a server does without pandas", name=fullname)


_COLLECTIONS = 20_000, 20, 20
"""When garbage is collected: frames are freed without it, and each look at those that are there takes
milliseconds."""


class _Server(uvicorn.Server):
    """Tells websockets that it goes, and takes a signal as a wish to stop, not as a failure."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, url: str) -> None:
        super().__init__(config)
        self._app = app
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # What is there by now stays: a collection that looks at all of it takes 60 ms, in the middle of work.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECTIONS)
        if self.started:
            _LOG.info("listening", extra={"url": self._url, "pid": os.getpid()})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _LOG.info("stopping")
        for server in self.servers:
            server.close()
        await say_goodbye(self._app)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn raises the signal again after the stop, so that the exit code would say "killed".
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
def _locked(data: Path) -> Iterator[None]:
    """Hold the data directory: two servers on the same logs would destroy them."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        handle = os.open(data / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CannotServe(f"the data directory {data} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(handle, 32, 0).decode(errors="replace").strip()
        os.close(handle)
        raise CannotServe(
            f"the data directory {data} is in use by another server (process {owner or 'unknown'}): "
            "stop it, or give another directory with --data"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)
    try:
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """Bind before anything is started, so that a taken port is one clear line."""
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
    # Two files per log and one per connection go beyond the usual 1024 soon.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
