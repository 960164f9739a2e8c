"""The policies that a benchmark runs: those that exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bench.load.server_process import ServerProcess
from mavstream_server.scheduling.registry import POLICIES

DEFAULT = "default"
"""Stands for what the server runs if nobody chooses."""


def chosen_policies(running: ServerProcess, names: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the scheduler's settings by name, and lines that name the policies the server does not list."""
    listed = {one["name"] for one in running.http.get("/v1/policies?limit=1000").json()["items"]}
    settings: dict[str, Any] = {}
    skipped = []
    for name in dict.fromkeys(names):
        if name == DEFAULT:
            settings[name] = running.http.get("/v1/scheduler").json()
        elif name in listed:
            settings[name] = {"policy": name}
        else:
            skipped.append(_not_run(name))
    return settings, skipped


def registered_policies(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names that are registered, and lines that name the others."""
    wanted = list(names)
    skipped = [_not_run(name) for name in wanted if name not in POLICIES]
    return [name for name in wanted if name in POLICIES], skipped


def _not_run(name: str) -> str:
    return f"{name}: not run, there is no such policy"
