"""Sender of fuzzed websocket sessions: several at a time, in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import NamedTuple
from urllib.parse import urlsplit

from attack.findings import Findings
from attack.fuzz.frames import CLOSE, PING, PONG, FrameReader, frame
from attack.fuzz.sessions import Ending, Session, session

AT_ONCE = 24
_CUT = 10.0  # seconds after which a session is given up
_CODES = frozenset((1000, 1002, 1003, 1005, 1007, 1008, 1009, 3000, 4400, 4403, 4404, 4408, 4409, 4410))
"""The close codes that a server may give to what it does not understand; 3000 is that of the client, sent
back; 1011 would be an internal error."""
_PROBE = b"still there?"
_READ = 1 << 16


class SocketJob(NamedTuple):
    """Which sessions are sent, and where to."""

    url: str
    feeder: str
    """Token of producers."""
    client: str
    """Token of subscribers."""
    query: str
    seed: int
    first: int
    frames: int
    """Frames after which no further session begins."""


class SocketReport(NamedTuple):
    """What was sent, and how it was answered."""

    findings: Findings
    next: int
    """The number of the first session that was not sent."""


class _Sender:
    def __init__(self, job: SocketJob) -> None:
        self._job = job
        self._address = urlsplit(job.url)
        self.findings = Findings()
        self.next = job.first

    async def run(self) -> None:
        while self.findings.frames < self._job.frames:
            number, self.next = self.next, self.next + 1
            made = session(self._job.seed, number, self._job.query)
            what = f"session {number} ({made.path[:60]})"
            try:
                async with asyncio.timeout(_CUT):
                    await self._session(what, made)
            except TimeoutError:
                self.findings.violated(f"{what}: it did not end within {_CUT:g} s")
            except OSError:
                self.findings.closes[1006] += 1  # reset, while more was sent after a close

    async def _session(self, what: str, made: Session) -> None:
        reader, writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        try:
            begin = time.monotonic()
            writer.write(self._upgrade(made))
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split()[1])
            self.findings.answered(what, status, time.monotonic() - begin)
            if status == 101:
                await self._exchange(what, made, reader, writer)
        except asyncio.IncompleteReadError:
            self.findings.violated(f"{what}: the handshake was not answered")
        finally:
            writer.close()

    def _upgrade(self, made: Session) -> bytes:
        token = self._job.feeder if made.path.startswith("/v1/feed") else self._job.client
        extension = "Sec-WebSocket-Extensions: permessage-deflate\r\n" if made.compression else ""
        return (
            f"GET {made.path} HTTP/1.1\r\nHost: {self._address.netloc}\r\nAuthorization: Bearer {token}\r\n"
            f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n{extension}"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        ).encode()

    async def _exchange(
        self, what: str, made: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        reading = asyncio.create_task(_until_end(reader))
        try:
            for data in made.frames:
                if reading.done():
                    break
                writer.write(data)
                self.findings.frames += 1
                await writer.drain()
                await asyncio.sleep(0)
            match made.ending:
                case Ending.ABORT:
                    writer.transport.abort()
                    return
                case Ending.CUT:
                    writer.write(frame(1, b"x" * 100)[:50])
                case Ending.PING:
                    writer.write(frame(PING, _PROBE))
                case Ending.CLOSE:
                    writer.write(frame(CLOSE, b"\x03\xe8"))
            if writer.can_write_eof() and made.ending is Ending.CUT:
                writer.write_eof()
            begin = time.monotonic()
            code = await reading
            self.findings.waited(f"the end of {what}", time.monotonic() - begin)
            if code is not None:
                # Nobody is left to read a close frame behind the end of the connection.
                legal = _CODES | {1006} if made.ending is Ending.CUT else _CODES
                if made.frames:
                    legal = legal | sent_back(made.frames[-1])
                self.findings.closed(what, code, legal)
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await reading


def sent_back(data: bytes) -> frozenset[int]:
    """Return the close code that a masked frame has, if it is one that applications may use.

    A server sends it back. The code may be any, since bits of the last frame of a session are flipped.
    """
    if len(data) < 8 or data[0] & 0x0F != CLOSE or data[1] < 0x82:
        return frozenset()
    code = (data[6] ^ data[2]) << 8 | data[7] ^ data[3]
    return frozenset((code,)) if 3000 <= code < 5000 else frozenset()


async def _until_end(reader: asyncio.StreamReader) -> int | None:
    """Read until the server closes or answers the last ping; returns the close code, 1006 without one."""
    frames = FrameReader()
    while data := await reader.read(_READ):
        for received in frames.feed(data):
            if received.opcode == CLOSE:
                return received.close_code
            if received.opcode == PONG and received.payload == _PROBE:
                return None
    return 1006


def send_sessions(job: SocketJob) -> SocketReport:
    """Send sessions until the frames of a job are sent."""
    sender = _Sender(job)

    async def work() -> None:
        await asyncio.gather(*(sender.run() for _ in range(AT_ONCE)))

    asyncio.run(work())
    return SocketReport(sender.findings, sender.next)
