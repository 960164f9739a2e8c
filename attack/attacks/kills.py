"""Kills: SIGKILL of the engine and of the server, in the middle of appends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from random import Random

from websockets.exceptions import WebSocketException

from attack.findings import Findings
from attack.options import Options
from attack.target.producer import Producer
from attack.target.reading import read_stream
from attack.target.server import PATIENCE, TargetServer
from attack.target.target import Target

STREAM = "survivors"
_ROWS = 10
"""Rows per frame."""
_IN_FLIGHT = 50  # frames
_RETRY = 0.02


def run(target: Target, options: Options) -> Findings:
    """Kill processes while rows are sent; every acked row must be in the log, and no row twice."""
    findings, random, data = Findings(), Random(options.seed), target.folder / "killed"
    server = TargetServer(data).wait_ready()
    try:
        server.create("/v1/streams", {"name": STREAM, "fields": [{"name": "n", "type": "int"}]})
        plan = {"root": "in", "nodes": {"in": {"op": "source", "stream": STREAM}}}
        server.create("/v1/queries", {"name": "q", "plan": plan})
        feeding = _Feeding(server)
        feeding.start()
        end = time.monotonic() + options.seconds
        kills: Counter[str] = Counter()
        while time.monotonic() < end:
            time.sleep(random.uniform(0.1, 0.6))
            if random.random() < 0.5:
                engine = server.engine_pid
                if engine is not None:
                    with suppress(ProcessLookupError):
                        os.kill(engine, signal.SIGKILL)
                    kills["engine"] += 1
            else:
                server.process.kill()
                server.process.wait(PATIENCE)
                server.close()
                kills["server"] += 1
                server = TargetServer(data).wait_ready()
                feeding.server = server
        feeding.stop()
        findings.frames += feeding.sent
        findings.metrics["kills"] = dict(kills)
        findings.metrics["frames acked"] = feeding.acked
        findings.expect(feeding.acked == feeding.sent, "the producer does not get its acks any more")
        rows = read_stream(server, STREAM, feeding.acked * _ROWS)
        check_numbers([row["n"] for row in rows], feeding.acked * _ROWS, findings)
    finally:
        server.close()
    return findings


def check_numbers(numbers: list[int], acked: int, findings: Findings) -> None:
    """Check that rows numbered from 0 are there in order, each once, and at least those that were acked."""
    counts = Counter(numbers)
    lost = [number for number in range(acked) if number not in counts]
    doubled = [number for number, count in counts.items() if count > 1]
    findings.expect(not lost, f"{len(lost)} acked rows are lost, the first ones {lost[:5]}")
    findings.expect(not doubled, f"{len(doubled)} rows are doubled, the first ones {doubled[:5]}")
    findings.expect(numbers == sorted(numbers), "the rows are not in the order in which they were sent")


class _Feeding(threading.Thread):
    """Sends frames, and connects again after each kill; after the end all frames are acked."""

    def __init__(self, server: TargetServer) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.sent = 0
        """The highest sequence that was ever sent."""
        self.acked = 0
        self._stopping = False

    def stop(self) -> None:
        """Stop sending, and wait until everything is acked."""
        self._stopping = True
        self.join(PATIENCE)

    def run(self) -> None:
        while not self._stopping or self.acked < self.sent:
            try:
                self._feed()
            except (OSError, WebSocketException, TimeoutError):
                time.sleep(_RETRY)

    def _feed(self) -> None:
        with Producer(self.server, "killed", STREAM) as producer:
            next_, self.acked = producer.last + 1, max(self.acked, producer.last)
            while True:
                while next_ - self.acked <= _IN_FLIGHT and not (self._stopping and next_ > self.sent):
                    producer.rows(next_, [{"n": (next_ - 1) * _ROWS + n} for n in range(_ROWS)])
                    self.sent = max(self.sent, next_)
                    next_ += 1
                if self._stopping and self.acked >= self.sent:
                    return
                received = producer.receive()
                self.acked = max(self.acked, received.get("sequence", 0))
