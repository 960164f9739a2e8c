"""The attack suite as a command, with small counts against a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from attack.fuzz.http_sender import HttpJob, send_requests
from attack.target.server import target_server

ROOT = Path(__file__).parents[2]
PATIENT = ("--patience", "60")
"""No test depends on the speed of the machine."""


def run_attack(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "attack", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_small_attacks_are_run_and_every_invariant_holds(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    names = ["planning", "browser", "tenants", "socket_fuzz", "kills"]
    done = run_attack(
        "--only", *names, "--frames", "500", "--seed", "3", "--json", str(table), "--seconds", "1", *PATIENT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 3" in done.stdout
    assert "every invariant held" in done.stdout
    written = json.loads(table.read_text())
    assert [line["attack"] for line in written["attacks"]] == names
    for line in written["attacks"]:
        assert line["violations"] == []
        assert line["requests"] + line["frames"] > 40
        assert line["acked"] > 0
        assert min(line["longest_livez_ms"], line["longest_ack_ms"], line["longest_query_ms"]) > 0
        assert min(line["api_bytes"], line["engine_bytes"]) > 10 << 20
    assert written["attacks"][3]["frames"] >= 500


def test_a_violation_is_reported_and_fails_the_command() -> None:
    done = run_attack("--only", "browser", "--patience", "1e-9")
    assert done.returncode == 1, done.stderr
    assert "VIOLATED: an ack took" in done.stdout
    assert "violations" in done.stdout.splitlines()[-1]


def test_mutated_requests_get_no_server_error(tmp_path: Path) -> None:
    with target_server(tmp_path / "data") as server:
        findings = send_requests(HttpJob(server.url, server.tokens, seed=5, first=0, requests=400))
        server.check_health(findings, "after the requests")
    assert findings.violations == []
    assert findings.requests == 400
    assert {200, 201, 400, 403, 404, 422} <= set(findings.statuses)
