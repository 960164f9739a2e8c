"""Baseline of the feeder benchmark: two processes that send a schedule through a bare socket."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from multiprocessing import get_context

import numpy as np

from bench.data.kolmogorov import Times

_HEADER = struct.Struct("<qd")  # number of rows sent with this message, and when the schedule began
_MESSAGE = 1024


def bare_arrivals(dues: Sequence[Times], tick: float) -> list[Times]:
    """Return the arrival times of the rows of each stream, sent every `tick` seconds when due.

    Rows that fell due between two ticks are sent in one message of 1 KiB, stamped when it is read. All times
    are seconds since the sender began.
    """
    times = np.concatenate(dues)
    order = np.argsort(times, kind="stable")
    whose = np.repeat(np.arange(len(dues)), [len(due) for due in dues])[order]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        sender = get_context("spawn").Process(target=_send, args=(port, times[order], tick))
        sender.start()
        connection, _ = listening.accept()
        with connection:
            stamps = _receive(connection, len(times))
        sender.join()
    return [stamps[whose == number] for number in range(len(dues))]


def _send(port: int, times: Times, tick: float) -> None:
    padding = bytes(_MESSAGE - _HEADER.size)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = time.perf_counter()
        sent = ticks = 0
        while sent < len(times):
            ticks = max(ticks + 1, int((time.perf_counter() - begin) / tick))
            time.sleep(max(begin + ticks * tick - time.perf_counter(), 0.0))
            due = int(times.searchsorted(time.perf_counter() - begin, "right"))
            if due > sent:
                connection.sendall(_HEADER.pack(due, begin) + padding)
                sent = due


def _receive(connection: socket.socket, rows: int) -> Times:
    stamps = np.zeros(rows)
    done, rest = 0, b""
    while done < rows and (data := connection.recv(1 << 16)):
        now = time.perf_counter()
        rest += data
        while len(rest) >= _MESSAGE:
            stop, begin = _HEADER.unpack_from(rest)
            stamps[done:stop] = now - begin
            done, rest = stop, rest[_MESSAGE:]
    if done < rows:
        raise RuntimeError(f"the bare socket brought {done} of {rows} rows: its sender ended early")
    return stamps
