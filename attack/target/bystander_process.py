"""The process of the bystanders: sends rows, reads acks and answers, asks for health, and times all of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from multiprocessing.connection import Connection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from attack.invariants import Waits

ROW_INTERVAL = 0.01
_PROBE_INTERVAL = 0.05
_RECONNECT = 0.1
_PATIENCE = 10.0  # seconds for everything in flight to be answered
_MOST_TROUBLES = 5


class Job(NamedTuple):
    """Where the bystanders go."""

    url: str
    token: str
    stream: str
    query: str


class Numbers:
    """Checks that rows numbered from 0 are answered in order, each exactly once."""

    def __init__(self) -> None:
        self.next = 0
        self.missing = 0
        self.doubled = 0

    def take(self, numbers: list[int]) -> None:
        """Record the numbers of answered rows."""
        for number in numbers:
            if number < self.next:
                self.doubled += 1
            else:
                self.missing += number - self.next
                self.next = number + 1

    @property
    def answered(self) -> int:
        """How many rows were answered at least once."""
        return self.next - self.missing


class Pending:
    """Rows that wait for something, with the longest wait so far; they are done in order."""

    def __init__(self) -> None:
        self._since: deque[tuple[int, float]] = deque()
        self.longest = 0.0

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, number: int, now: float) -> None:
        """Row `number` waits from now on."""
        self._since.append((number, now))

    def done(self, number: int, now: float) -> None:
        """All rows up to a number are done."""
        while self._since and self._since[0][0] <= number:
            self.longest = max(self.longest, now - self._since.popleft()[1])

    def report(self, now: float) -> float:
        """Return the longest wait since the last report, of rows that still wait, too."""
        found = max([self.longest, *(now - since for _, since in self._since)])
        self.longest = 0.0
        return found


class _Bystanders:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._websocket_url = "ws" + job.url.removeprefix("http")
        self._header = {"Authorization": f"Bearer {job.token}"}
        self._sent = 0
        self._acked = 0
        self._offset = -1
        self._numbers = Numbers()
        self._acks, self._answers = Pending(), Pending()
        self._livez = 0.0
        self._paused = False
        self._troubles: list[str] = []
        self._connected = {"producer": asyncio.Event(), "subscriber": asyncio.Event()}

    async def serve(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        tasks = [
            asyncio.create_task(work)
            for work in (
                self._forever("producer", self._produce),
                self._forever("subscriber", self._subscribe),
                self._probe(),
            )
        ]
        for connected in self._connected.values():
            await connected.wait()
        asked: asyncio.Queue[bool] = asyncio.Queue()

        def ask() -> None:
            try:
                connection.recv()
            except EOFError:  # the attacking process has died
                loop.remove_reader(connection.fileno())
                asked.put_nowait(False)
            else:
                asked.put_nowait(True)

        loop.add_reader(connection.fileno(), ask)
        connection.send(self._report())
        while await asked.get():
            await self._settle()
            connection.send(self._report())
            self._paused = False
            for task in tasks:
                if task.done():
                    task.result()

    async def _settle(self) -> None:
        self._paused = True
        end = time.monotonic() + _PATIENCE
        while (len(self._acks) or self._numbers.next < self._acked) and time.monotonic() < end:
            await asyncio.sleep(ROW_INTERVAL)

    def _report(self) -> Waits:
        now = time.monotonic()
        found = Waits(
            self._livez,
            self._acks.report(now),
            self._answers.report(now),
            self._acked,
            self._numbers.answered,
            self._numbers.missing,
            self._numbers.doubled,
            tuple(self._troubles),
        )
        self._livez, self._troubles = 0.0, []
        return found

    def _trouble(self, what: str) -> None:
        if len(self._troubles) < _MOST_TROUBLES:
            self._troubles.append(what)

    async def _forever(self, name: str, work: Any) -> None:
        """Connect again whenever the connection ends, which is a violation."""
        while True:
            try:
                await work(self._connected[name])
            except (OSError, WebSocketException) as error:
                self._trouble(f"the connection of the {name} ended: {error}")
            await asyncio.sleep(_RECONNECT)

    async def _produce(self, connected: asyncio.Event) -> None:
        async with connect(self._websocket_url + "/v1/feed", additional_headers=self._header) as socket:
            await socket.send(_json(type="hello", producer="bystander", streams=[self._job.stream]))
            welcome = json.loads(await socket.recv())
            self._sent = welcome["streams"][self._job.stream]["last_sequence"]
            connected.set()
            reading = asyncio.create_task(self._read_acks(socket))
            try:
                while not reading.done():
                    if not self._paused:
                        await self._send_row(socket)
                    await asyncio.sleep(ROW_INTERVAL)
                reading.result()
            finally:
                reading.cancel()

    async def _send_row(self, socket: ClientConnection) -> None:
        number, self._sent = self._sent, self._sent + 1
        now = time.monotonic()
        self._acks.begin(number, now)
        self._answers.begin(number, now)
        await socket.send(
            _json(type="data", stream=self._job.stream, sequence=number + 1, rows=[{"n": number}])
        )

    async def _read_acks(self, socket: ClientConnection) -> None:
        async for message in socket:
            received = json.loads(message)
            if received["type"] != "ack":
                self._trouble(f"the producer received {message!r:.200}")
                continue
            self._acked = max(self._acked, received["sequence"])
            self._acks.done(received["sequence"] - 1, time.monotonic())

    async def _subscribe(self, connected: asyncio.Event) -> None:
        url = f"{self._websocket_url}/v1/queries/{self._job.query}/results?after={self._offset}"
        async with connect(url, additional_headers=self._header) as socket:
            async for message in socket:
                received = json.loads(message)
                if received["type"] == "rows":
                    numbers = [row["n"] for row in received["rows"]]
                    self._numbers.take(numbers)
                    self._offset = received["offset"] + len(numbers) - 1
                    self._answers.done(self._numbers.next - 1, time.monotonic())
                elif received["type"] == "opened":
                    connected.set()
                else:
                    self._trouble(f"the subscriber received {message!r:.200}")

    async def _probe(self) -> None:
        """Ask for health, each time on a new connection."""
        address = urlsplit(self._job.url)
        request = f"GET /livez HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode()
        while True:
            begin, answer = time.monotonic(), b""
            try:
                async with asyncio.timeout(_PATIENCE):
                    reader, writer = await asyncio.open_connection(address.hostname, address.port)
                    writer.write(request)
                    answer = await reader.read()
                    writer.close()
            except (OSError, TimeoutError) as error:
                self._trouble(f"a health check failed: {error!r}")
            else:
                if not answer.startswith(b"HTTP/1.1 200"):
                    self._trouble(f"a health check was answered with {answer[:100]!r}")
            self._livez = max(self._livez, time.monotonic() - begin)
            await asyncio.sleep(_PROBE_INTERVAL)


def run(job: Job, connection: Connection) -> None:
    """Run the bystanders until the other end of the connection is closed; a message asks for a report."""
    asyncio.run(_Bystanders(job).serve(connection))


def _json(**message: Any) -> str:
    return json.dumps(message)
