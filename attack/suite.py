"""The suite: runs attacks one after the other, and checks the invariants after each."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attack.attacks import (
    browser,
    damage,
    floods,
    http_fuzz,
    kills,
    memory,
    planning,
    slices,
    socket_fuzz,
    tenants,
)
from attack.findings import Findings
from attack.invariants import violations
from attack.options import Options
from attack.report import Line
from attack.target.target import LIMITS, Target, Watch, target

Attack = Callable[[Target, Options], Findings]

ATTACKS: dict[str, Attack] = {
    "planning": planning.run,
    "memory": memory.run,
    "slices": slices.run,
    "browser": browser.run,
    "damage": damage.run,
    "floods": floods.run,
    "tenants": tenants.run,
    "http_fuzz": http_fuzz.run,
    "socket_fuzz": socket_fuzz.run,
    "kills": kills.run,
}
"""The attacks by name, in the order in which they are run."""


def run(names: Sequence[str], options: Options) -> Iterator[Line]:
    """Run attacks against one server, and return the line of each when it has ended."""
    with tempfile.TemporaryDirectory() as folder, target(Path(folder)) as (under_attack, watch):
        for name in names:
            yield run_one(name, ATTACKS[name], under_attack, watch, options)


def run_one(name: str, attack: Attack, under_attack: Target, watch: Watch, options: Options) -> Line:
    """Run one attack, remove what it left, and check the invariants."""
    acked, begin = watch.begin(), time.monotonic()
    findings = attack(under_attack, options)
    seconds = time.monotonic() - begin
    under_attack.tidy()
    observed = watch.end()
    found = violations(findings, observed, LIMITS._replace(wait_s=options.patience))
    return Line(name, seconds, findings, observed, observed.waits.acked - acked, found)
