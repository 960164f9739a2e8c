"""HTTP fuzz: Schemathesis over the OpenAPI document, and mutated requests of all routes for volume."""

from __future__ import annotations

from attack.findings import Findings
from attack.fuzz.http_sender import HttpJob, send_requests
from attack.fuzz.own_process import in_own_process
from attack.fuzz.schemathesis import run_schemathesis
from attack.options import Options
from attack.target.target import Target

_ROUND = 20_000
"""Requests after which everything that they created is removed."""
_SECONDS_PER_REQUEST = 0.001
"""How long Schemathesis runs for each mutated request; it is some ten times slower."""
_LEAST_SECONDS, _MOST_SECONDS = 15.0, 300.0
_PATIENCE = 600.0  # seconds for a round


def run(target: Target, options: Options) -> Findings:
    """Send the requests; whatever they are, none may get a 5xx or wait for more than a second."""
    seconds = min(max(options.requests * _SECONDS_PER_REQUEST, _LEAST_SECONDS), _MOST_SECONDS)
    findings = run_schemathesis(target.server, target.folder, options, seconds)
    target.tidy()
    for first in range(0, options.requests, _ROUND):
        count = min(_ROUND, options.requests - first)
        job = HttpJob(target.server.url, target.server.tokens, options.seed, first, count)
        findings.add(in_own_process(send_requests, job, _PATIENCE))
        target.tidy()
        target.server.create("/v1/scheduler", {"policy": "cqc"}, "PUT")
    return findings
