"""A proxy that resets connections at given points."""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Literal

Direction = Literal["up", "down"]


class CuttingProxy:
    """Forwards bytes between clients and a server.

    Each new connection takes the next of `limits`: after that many bytes in the given direction (`up` to the
    server, `down` from it) it is reset. When the limits are used up, connections live.
    """

    def __init__(self, url: str, limits: Iterable[int], direction: Direction) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._server = (host, int(port))
        self._limits = iter(limits)
        self._direction = direction
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = Lock()
        self._open: set[socket.socket] = set()
        self._threads = [Thread(target=self._accept)]
        self.cuts = 0
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Reset all connections now."""
        with self._lock:
            for each in self._open:
                _reset(each)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = Thread(target=self._pass_on, args=(client, next(self._limits, None)))
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, client: socket.socket, limit: int | None) -> None:
        with client, socket.create_connection(self._server) as server, selectors.DefaultSelector() as ready:
            with self._lock:
                self._open |= {client, server}
            ready.register(client, selectors.EVENT_READ, (server, "up"))
            ready.register(server, selectors.EVENT_READ, (client, "down"))
            try:
                self._copy(ready, limit)
            except OSError:
                pass
            finally:
                with self._lock:
                    self._open -= {client, server}
                _reset(client)
                _reset(server)

    def _copy(self, ready: selectors.BaseSelector, limit: int | None) -> None:
        while True:
            for key, _ in ready.select():
                assert isinstance(key.fileobj, socket.socket)
                target, direction = key.data
                data = key.fileobj.recv(65536)
                if not data:
                    return
                if limit is not None and direction == self._direction:
                    target.sendall(data[:limit])
                    limit -= len(data)
                    if limit <= 0:
                        self.cuts += 1
                        return
                else:
                    target.sendall(data)


def _reset(connection: socket.socket) -> None:
    try:
        # Linger 0 sends a reset instead of a FIN; the shutdown wakes the thread that waits here.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


@contextmanager
def cutting_proxy(
    url: str, limits: Iterable[int] = (), direction: Direction = "down"
) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(url, limits, direction)
    try:
        yield proxy
    finally:
        proxy.close()
