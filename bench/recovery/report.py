"""The report of the recovery benchmark: medians of its runs, beside the goals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.outcome import shown, text_table
from bench.scheduling.isolation_report import medians

__all__ = ["medians", "text"]


def text(metrics: Mapping[str, Any]) -> str:
    """Return a table for each part that was measured."""
    tables = {"kill": _kill, "cost": _cost, "stall": _stall}
    return "\n\n".join(tables[name](part) for name, part in metrics.items())


def _kill(part: Mapping[str, Any]) -> str:
    rows = [
        ("state, MB", shown(part["state_mb"], ",.0f"), ""),
        ("unread at the kill, MB", shown(part["backlog_mb"], ",.1f"), "0"),
        ("next engine after, s", shown(part["engine_s"], ".2f"), ""),
        ("important class answers after, s", shown(part["important_s"], ".2f"), ""),
        ("half of the queries, s", shown(part["half_s"], ".2f"), ""),
        ("all queries, s", shown(part["all_s"], ".2f"), "5"),
        ("rows replayed", shown(part["rows_replayed"], ",.0f"), ""),
        ("rows replayed per s", shown(part["rows_replayed_per_s"], ",.0f"), ""),
        ("orderly stop, s", shown(part["stop_s"], ".2f"), ""),
        ("rows left to replay", shown(part["left_to_replay"], ",.0f"), "0"),
        ("ready after, s", shown(part["ready_s"], ".2f"), "2"),
        ("all queries running after, s", shown(part["all_running_s"], ".2f"), "2"),
        ("wrong answers", shown(part["wrong"], ".0f"), "0"),
    ]
    return text_table(("kill and restart", "measured", "goal"), rows)


def _cost(part: Mapping[str, Any]) -> str:
    without, with_ = part["without"], part["with"]

    def row(label: str, key: str, form: str, goal: str = "") -> tuple[str, ...]:
        ratio = with_[key] / without[key] if without[key] else None
        return (label, shown(without[key], form), shown(with_[key], form), shown(ratio, ".3f"), goal)

    rows = [
        row("state, MB", "state_mb", ",.0f"),
        row("tuples/s of a burst", "burst_tuples_per_s", ",.0f", "0.95"),
        row("engine, cores", "engine_cores", ".3f", "1.03"),
        row("writer of checkpoints, cores", "writer_cores", ".3f"),
        row("important class p50, ms", "important_p50_ms", ".2f"),
        row("important class p99, ms", "important_p99_ms", ".2f", "1.3"),
        row("wrong answers", "wrong", ".0f", "0"),
    ]
    return text_table(("checkpoints", "without", "with", "ratio", "goal"), rows)


def _stall(part: Mapping[str, Any]) -> str:
    def row(label: str, key: str, form: str, goal: str = "") -> tuple[str, ...]:
        return (label, *(shown(one[key], form) for one in part.values()), goal)

    rows = [
        row("state of the large query, MB", "state_mb", ",.0f"),
        row("important class p50, ms", "p50_ms", ".2f"),
        row("important class p99, ms", "p99_ms", ".2f", "10 above without"),
        row("longest, ms", "longest_ms", ".1f"),
        row("commands", "commands", ".0f"),
        row("reply to a command, ms", "command_ms", ".0f"),
        row("wrong answers", "wrong", ".0f", "0"),
    ]
    return text_table(("one query with much state", *part, "goal"), rows)
