"""Socket fuzz: producers and subscribers that break the protocol, from a process of their own."""

from __future__ import annotations

from attack.findings import Findings
from attack.fuzz.own_process import in_own_process
from attack.fuzz.sessions import FIELDS, STREAMS, producer
from attack.fuzz.socket_sender import SocketJob, send_sessions
from attack.options import Options
from attack.target.target import Target

_ROUND = 20_000
"""Frames after which the producers are removed."""
_PATIENCE = 600.0  # seconds for a round


def run(target: Target, options: Options) -> Findings:
    """Send the sessions; none may be closed with an internal error, or wait for more than a second."""
    server, findings, first = target.server, Findings(), 0
    fields = [{"name": each.name, "type": each.type.value, "nullable": each.nullable} for each in FIELDS]
    for stream in STREAMS:
        server.create("/v1/streams", {"name": stream, "fields": fields, "retention": {"bytes": "1MB"}})
    nodes = {"in": {"op": "source", "stream": STREAMS[0]}}
    query = str(server.create("/v1/queries", {"name": "q", "plan": {"root": "in", "nodes": nodes}})["id"])
    tokens = server.tokens
    while findings.frames < options.frames:
        frames = min(_ROUND, options.frames - findings.frames)
        job = SocketJob(server.url, tokens["feeder"], tokens["client"], query, options.seed, first, frames)
        report = in_own_process(send_sessions, job, _PATIENCE)
        findings.add(report.findings)
        for number in range(first, report.next):
            server.http.delete(f"/v1/producers/{producer(options.seed, number)}")
        first = report.next
    findings.metrics["sessions"] = first
    return findings
