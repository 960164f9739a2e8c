"""Damage: flipped bytes in segments and in the catalog of a stopped server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

from attack.findings import Findings
from attack.options import Options
from attack.target.producer import Producer
from attack.target.reading import read_stream
from attack.target.server import target_server
from attack.target.target import Target
from mavstream._errors import CannotStart

STREAM = "fragile"
ROWS = 600
_FLIPS = 4
"""Flipped bytes per segment."""
_TEXT = 4000  # characters of a row, so that the rows fill several segments
_PATIENCE = 60.0


def run(target: Target, options: Options) -> Findings:
    """Damage files, and check that each flipped byte costs one row at most and is reported."""
    findings, data, random = Findings(), target.folder / "damaged", Random(options.seed)
    with target_server(data) as server:
        quota = {"quota": "8MB"}  # segments of a megabyte
        fields = [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}]
        server.create("/v1/streams", {"name": STREAM, "fields": fields, **quota})
        with Producer(server, "p", STREAM) as producer:
            for n in range(ROWS):
                producer.append(n + 1, [_row(n)])
    findings.frames += ROWS
    catalog = data / "catalog.sqlite"
    _garbled_catalog(findings, data, catalog)
    segments = sorted((data / "streams" / STREAM).glob("*.segment"), key=lambda file: file.name.split("-")[1])
    findings.expect(len(segments) > 1, "there is no sealed segment: nothing was tested")
    flips = sum(_flip(random, file) for file in segments)
    findings.metrics["flipped bytes"] = f"{flips} in {len(segments)} segments"
    lost = _served(findings, data, flips, reported=True)
    findings.metrics["lost rows"] = f"{len(lost)} of {ROWS}"
    _check(findings, data, 1, "--repair")
    _check(findings, data, 0)
    again = _served(findings, data, flips, reported=False)
    findings.expect(
        again == lost, f"after the repair rows {sorted(again ^ lost)[:10]} are served differently"
    )
    return findings


def _row(n: int) -> dict[str, Any]:
    return {"n": n, "s": f"{n:0{_TEXT}}"}


def _flip(random: Random, file: Path) -> int:
    content = bytearray(file.read_bytes())
    end = len(content.rstrip(b"\0"))
    places = random.sample(range(end), _FLIPS)
    for place in places:
        content[place] ^= 1 << random.randrange(8)
    file.write_bytes(content)
    return len(places)


def _served(findings: Findings, data: Path, flips: int, reported: bool) -> set[int]:
    """Start the server and read everything; returns the rows that are lost."""
    with target_server(data) as server:
        rows = read_stream(server, STREAM, ROWS - flips)
        intact = [row["n"] for row in rows if row == _row(row["n"])]
        findings.expect(len(intact) == len(rows), f"{len(rows) - len(intact)} damaged rows were served")
        findings.expect(intact == sorted(set(intact)), "rows are served twice, or not in order")
        lost = set(range(ROWS)) - set(intact)
        findings.expect(len(lost) <= flips, f"{flips} flipped bytes lost {len(lost)} rows")
        ready = server.http.get("/readyz")
        findings.answered("/readyz", ready.status_code, 0.0)
        damage = sum(each["rows"] for each in ready.json()["damage"])
        if reported:
            findings.expect(damage == len(lost), f"/readyz reports {damage} lost rows, {len(lost)} are lost")
        with Producer(server, "q", STREAM) as producer:
            producer.append(producer.last + 1, [])
    return lost


def _garbled_catalog(findings: Findings, data: Path, catalog: Path) -> None:
    """A garbled catalog must be refused, and left as it is."""
    intact = catalog.read_bytes()
    for garbled in (b"", bytes(len(intact)), intact[:16] + bytes(4080) + intact[4096:]):
        catalog.write_bytes(garbled)
        try:
            with target_server(data):
                findings.violated("a server started with a garbled catalog")
        except CannotStart as refused:
            findings.expect("catalog" in str(refused), f"the catalog is not named: {str(refused)[:300]}")
        findings.expect(catalog.read_bytes() == garbled, "a garbled catalog was replaced")
    catalog.write_bytes(intact)


def _check(findings: Findings, data: Path, expected: int, *flags: str) -> None:
    command = [sys.executable, "-m", "mavstream", "check", str(data), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    what = f"mavstream check {' '.join(flags)}".strip()
    code = done.returncode
    findings.expect(code == expected, f"{what}: exit code {code}, not {expected}: {done.stdout[-500:]}")
    findings.expect("Traceback" not in done.stderr, f"{what}: {done.stderr[-500:]}")
