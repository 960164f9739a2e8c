"""Scheduler pools: one for each priority that a class can have, with the priority as its weight."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mavstream_protocol.classes import HIGHEST_PRIORITY, LOWEST_PRIORITY

POOL = "spark.scheduler.pool"
"""The property of a thread that names the pool of its jobs."""


def pool_of(priority: int) -> str:
    """Return the name of the pool of a priority."""
    return f"priority_{priority}"


def fair_settings(folder: Path) -> Mapping[str, str]:
    """Write the allocation file to a folder; returns the settings of a session that uses it."""
    file = folder / "pools.xml"
    pools = "".join(
        f'<pool name="{pool_of(priority)}"><schedulingMode>FAIR</schedulingMode>'
        f"<weight>{priority}</weight><minShare>0</minShare></pool>\n"
        for priority in range(LOWEST_PRIORITY, HIGHEST_PRIORITY + 1)
    )
    file.write_text(f'<?xml version="1.0"?>\n<allocations>\n{pools}</allocations>\n')
    return {"spark.scheduler.mode": "FAIR", "spark.scheduler.allocation.file": file.as_uri()}
