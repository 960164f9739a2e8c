"""The policies that a benchmark runs on a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bench.load.server_process import ServerProcess

DEFAULT = "default"
"""Stands for what the server runs if nobody chooses."""


def chosen_policies(running: ServerProcess, names: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the scheduler's settings by name, and the names that the server does not list."""
    listed = {one["name"] for one in running.http.get("/v1/policies?limit=1000").json()["items"]}
    settings: dict[str, Any] = {}
    skipped = []
    for name in dict.fromkeys(names):
        if name == DEFAULT:
            settings[name] = running.http.get("/v1/scheduler").json()
        elif name in listed:
            settings[name] = {"policy": name}
        else:
            skipped.append(name)
    return settings, skipped
