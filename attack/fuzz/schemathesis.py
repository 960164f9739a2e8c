"""Schemathesis: its command over the OpenAPI document, with stateful links, as each role."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from attack.findings import Findings
from attack.options import Options
from attack.target.server import TargetServer

_CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
_ADMINISTRATION = (
    *("change_query", "remove_query", "put_class", "remove_producer", "complete_stream", "append_tuples"),
    *("set_scheduler", "set_optimizer"),
)
"""With these, an administrator may change what belongs to the bystanders."""
HOOKS = {"SCHEMATHESIS_HOOKS": str(Path(__file__).with_name("arrow_bodies.py"))}
"""What its command needs in its environment."""
_SLACK = 60.0  # seconds beyond its own limit after which the command has failed


def run_schemathesis(server: TargetServer, folder: Path, options: Options, seconds: float) -> Findings:
    """Run it for some seconds in all; what it finds is a violation each."""
    findings = Findings()
    for role in server.tokens:
        excluded = _ADMINISTRATION if role == "admin" else ()
        findings.add(_run(server, folder, role, options, seconds / len(server.tokens), excluded))
    return findings


def _run(
    server: TargetServer, folder: Path, role: str, options: Options, seconds: float, excluded: tuple[str, ...]
) -> Findings:
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{server.url}/openapi.json"]
    command += ["--checks", _CHECKS, "--phases", "examples,coverage,fuzzing,stateful"]
    command += [
        "--max-time",
        str(max(round(seconds), 1)),
        "--seed",
        str(options.seed),
        "--continue-on-failure",
    ]
    command += ["--header", f"Authorization:{server.header(role)['Authorization']}", "--no-color"]
    command += ["--generation-database", "none", "--request-timeout", "20", "--warnings", "off"]
    command += ["--max-response-time", str(options.patience)]
    # A trace is answered after the seconds that it asks for.
    command += ["--exclude-path", "/v1/scheduler/trace"]
    for operation in excluded:
        command += ["--exclude-operation-id", operation]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **HOOKS},
        capture_output=True,
        text=True,
        timeout=seconds + _SLACK,
        check=False,
    )
    findings = Findings()
    cases = re.search(r"([\d,]+) generated", done.stdout)
    findings.requests = int(cases[1].replace(",", "")) if cases else 0
    findings.metrics[f"schemathesis as {role}"] = f"{findings.requests} test cases"
    if done.returncode:
        output = done.stdout + done.stderr
        findings.violated(f"schemathesis as {role}: exit code {done.returncode}\n{output[-4000:]}")
    findings.expect(findings.requests, f"schemathesis as {role} has sent nothing")
    return findings
