"""Doorbells: one process tells another of news, as often as it likes, and never waits."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Self

_ONE = (1).to_bytes(8, "little")  # what an eventfd wants to be told; a socket does not mind


class Doorbell:
    """A pair of file descriptors, of which each process has one or both; the same one twice for an eventfd.

    Rings that nobody has heard yet are one ring.
    """

    def __init__(self, hear_fd: int, ring_fd: int) -> None:
        self.hear_fd = hear_fd
        """Readable while it has been rung; can be polled."""
        self.ring_fd = ring_fd

    @classmethod
    def create(cls) -> Self:
        """Make a doorbell whose descriptors can be handed to another process."""
        if hasattr(os, "eventfd"):
            fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return cls(fd, fd)
        return cls.create_from_sockets()

    @classmethod
    def create_from_sockets(cls) -> Self:
        """Make one without an eventfd, which only Linux has."""
        hear, ring = socket.socketpair()
        for end in (hear, ring):
            end.setblocking(False)
        return cls(hear.detach(), ring.detach())

    def ring(self) -> None:
        """Say that there is news; does nothing once the doorbell is closed or the other side is gone."""
        # A full socket has been rung often enough.
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            if self.ring_fd >= 0:
                os.write(self.ring_fd, _ONE)

    def silence(self) -> bool:
        """Forget the rings so far, and return whether there were any; look for news after this."""
        heard = False
        with suppress(BlockingIOError, ConnectionResetError):
            while os.read(self.hear_fd, 4096):
                heard = True
        return heard

    def close(self) -> None:
        """Close this process's descriptors; closing again does nothing."""
        for fd in {self.hear_fd, self.ring_fd} - {-1}:
            os.close(fd)
        self.hear_fd = self.ring_fd = -1
