"""HTTP fuzz: mutated requests of all routes, in rounds, from a process of its own."""

from __future__ import annotations

from attack.findings import Findings
from attack.fuzz.http_sender import HttpJob, send_requests
from attack.fuzz.own_process import in_own_process
from attack.options import Options
from attack.target.target import Target

_ROUND = 20_000
"""Requests after which everything that they created is removed."""
_PATIENCE = 600.0  # seconds for a round


def run(target: Target, options: Options) -> Findings:
    """Send the requests; whatever they are, none may get a 5xx or wait for more than a second."""
    findings = Findings()
    for first in range(0, options.requests, _ROUND):
        count = min(_ROUND, options.requests - first)
        job = HttpJob(target.server.url, target.server.tokens, options.seed, first, count)
        findings.add(in_own_process(send_requests, job, _PATIENCE))
        target.tidy()
        target.server.create("/v1/scheduler", {"policy": "cqc"}, "PUT")
    return findings
