"""Doorbells: one process wakes another without ever blocking."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Self

_ONE = (1).to_bytes(8, "little")  # an eventfd requires 8 bytes; a socket accepts any


class Doorbell:
    """A pair of file descriptors, of which each process has one or both; an eventfd is both at once.

    Rings that were not silenced yet count as one ring.
    """

    def __init__(self, hear_fd: int, ring_fd: int) -> None:
        self.hear_fd = hear_fd
        """The descriptor that is readable once it was rung, for polling."""
        self.ring_fd = ring_fd
        """The descriptor that rings are written to."""

    @classmethod
    def create(cls) -> Self:
        """Create a doorbell whose descriptors can be passed to another process."""
        if hasattr(os, "eventfd"):
            fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return cls(fd, fd)
        return cls.create_from_sockets()

    @classmethod
    def create_from_sockets(cls) -> Self:
        """Create a doorbell from a socket pair, for systems without eventfd."""
        hear, ring = socket.socketpair()
        for end in (hear, ring):
            end.setblocking(False)
        return cls(hear.detach(), ring.detach())

    def ring(self) -> None:
        """Wake the other process; does nothing if the doorbell is closed or the process has ended."""
        # A full socket is readable already.
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            if self.ring_fd >= 0:
                os.write(self.ring_fd, _ONE)

    def silence(self) -> bool:
        """Clear the rings so far; returns whether there were any. Look for new data afterwards."""
        heard = False
        with suppress(BlockingIOError, ConnectionResetError):
            while os.read(self.hear_fd, 4096):
                heard = True
        return heard

    def close(self) -> None:
        """Close this process's descriptors; may be called repeatedly."""
        for fd in {self.hear_fd, self.ring_fd} - {-1}:
            os.close(fd)
        self.hear_fd = self.ring_fd = -1
