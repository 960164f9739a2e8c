"""Sender of fuzzed HTTP requests: keep-alive connections in a process of its own."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

from attack.findings import Findings
from attack.fuzz.requests import FuzzRequest, request
from attack.target.raw_http import Answer

CONNECTIONS = 32
_CUT = 70.0  # seconds after which an answer is given up
_BOUNDED_ELSEWHERE = ("/scheduler/trace", "/queries/try")
"""A trace is answered after the seconds that it asks for; trials run one after the other, in processes."""
_READ = 1 << 16


class HttpJob(NamedTuple):
    """Which requests are sent, and where to."""

    url: str
    tokens: dict[str, str]
    seed: int
    first: int
    requests: int


class _Connection:
    """Sends its share of the requests, one after the other."""

    def __init__(self, job: HttpJob, share: int, findings: Findings) -> None:
        self._job = job
        self._share = share
        self._findings = findings
        self._address = urlsplit(job.url)
        self._query = "none"
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self) -> None:
        for number in range(self._job.first + self._share, self._job.first + self._job.requests, CONNECTIONS):
            await self._send(number, request(self._job.seed, number))
        self._close()

    async def _send(self, number: int, fuzzed: FuzzRequest) -> None:
        data = fuzzed.bytes(self._address.netloc, self._job.tokens[fuzzed.role], self._query)
        what = f"request {number} ({fuzzed.method} {fuzzed.path[:80]})"
        begin = time.monotonic()
        try:
            async with asyncio.timeout(_CUT):
                answer = await self._exchange(data, fuzzed)
        except TimeoutError:
            self._close()
            self._findings.violated(f"{what}: not answered within {_CUT:g} s")
            return
        except OSError:
            answer = None
        seconds = time.monotonic() - begin
        if answer is None or not answer.complete:
            self._close()
            self._findings.requests += 1
            self._findings.statuses[0] += 1
            legal = fuzzed.framing is not None or "Upgrade" in fuzzed.headers
            self._findings.expect(legal, f"{what}: the connection was closed without an answer")
            return
        # An incomplete request is answered after a time-out.
        timed = fuzzed.framing is None and not any(path in fuzzed.path for path in _BOUNDED_ELSEWHERE)
        self._findings.answered(what, answer.status, seconds if timed else 0.0)
        location = answer.headers.get(b"location", b"").decode("latin-1")
        if location.startswith("/v1/queries/"):
            self._query = location.rsplit("/", 1)[1]
        closing = answer.headers.get(b"connection", b"").lower() == b"close"
        if closing or fuzzed.framing is not None or fuzzed.method in ("HEAD", "CONNECT"):
            self._close()

    async def _exchange(self, data: bytes, fuzzed: FuzzRequest) -> Answer | None:
        """Return the answer; a connection that was idle may have been closed, which is tried once more."""
        for again in (self._open is not None, False):
            if self._open is None:
                self._open = await asyncio.open_connection(self._address.hostname, self._address.port)
            reader, writer = self._open
            answer = Answer(fuzzed.method == "HEAD")
            try:
                writer.write(data)
                if fuzzed.framing is not None:
                    writer.write_eof()
                await writer.drain()
                while not answer.complete and (received := await reader.read(_READ)):
                    answer.parser.feed_data(received)
            except httptools.HttpParserUpgrade:
                return None
            except (OSError, httptools.HttpParserError):
                pass
            if answer.complete or not again:
                return answer
            self._close()
        return None

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


def send_requests(job: HttpJob) -> Findings:
    """Send all requests of a job and return how they were answered."""
    findings = Findings()

    async def work() -> None:
        await asyncio.gather(*(_Connection(job, share, findings).run() for share in range(CONNECTIONS)))

    asyncio.run(work())
    return findings
