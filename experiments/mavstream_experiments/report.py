"""The report: a page with every claim beside what was measured, and the same as data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any

from mavstream_experiments.estimates import Finding, Verdict, findings
from mavstream_experiments.model import Experiment, Table

PAGE, VERDICTS = "README.md", "verdicts.json"

_HEAD = """\
# The papers' experiments

Written by `mavstream experiments run --all`: the claims of the papers that can be simulated, what was
published, and what the simulator gives (the mean over seeds, with its 95 % confidence interval). A verdict is
worked out from these numbers: *reproduced* if the mean lies in the band that the claim stands for, *partly*
if it lies in a wider one or the interval reaches the band, *not* otherwise.
"""


def write(
    place: Path, known: Mapping[str, Experiment], found: Mapping[str, Sequence[Table]], pictures: bool
) -> list[dict[str, Any]]:
    """Write page, data and pictures; findings of earlier runs that were not repeated are kept.

    Returns the entries of the experiments that were run.
    """
    place.mkdir(parents=True, exist_ok=True)
    new = [
        entry(finding, len(tables))
        for name, tables in found.items()
        for finding in findings(known[name], tables)
    ]
    kept = [
        one
        for one in _read(place / VERDICTS)
        if one["experiment"] in known and one["experiment"] not in found
    ]
    entries = sorted([*kept, *new], key=lambda one: one["experiment"])  # stable: claims stay in their order
    (place / VERDICTS).write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if pictures:
        from mavstream_experiments.pictures import draw

        for name, tables in found.items():
            if known[name].picture is not None:
                draw(known[name], tables, place / f"{name}.png")
    (place / PAGE).write_text(page(known, entries, place), encoding="utf-8")
    return new


def entry(finding: Finding, seeds: int) -> dict[str, Any]:
    """Return a finding as data."""
    measured = finding.measured
    return {
        "experiment": finding.experiment,
        "claim": finding.claim.text,
        "published": finding.claim.published,
        "measured": _number(measured.mean),
        "interval": [_number(measured.low), _number(measured.high)],
        "unit": finding.claim.unit,
        "expected": str(finding.claim.holds),
        "required": finding.claim.required,
        "seeds": seeds,
        "verdict": finding.verdict.value,
    }


def _number(value: float) -> float | None:
    return float(f"{value:.4g}") if isfinite(value) else None


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    entries: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return entries


def page(known: Mapping[str, Experiment], entries: Sequence[Mapping[str, Any]], place: Path) -> str:
    """Return the page as Markdown."""
    parts = [_HEAD, _summary(known, entries)]
    paper = None
    for name, group in groupby(entries, key=lambda one: one["experiment"]):
        experiment = known[name]
        if experiment.paper != paper:
            paper = experiment.paper
            parts.append(f"## {paper}\n")
        picture = f"![{experiment.title}]({name}.png)\n" if (place / f"{name}.png").exists() else ""
        parts.append(f"### {experiment.title}\n\n`{name}`: {experiment.about}\n")
        parts.append(f"*Calibration.* {experiment.calibration}\n")
        parts.append(_claims(group))
        if picture:
            parts.append(picture)
    return "\n".join(parts)


def _summary(known: Mapping[str, Experiment], entries: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| paper | claims | reproduced | partly | not |", "|---|---|---|---|---|"]
    for paper in dict.fromkeys(known[one["experiment"]].paper for one in entries):
        verdicts = [one["verdict"] for one in entries if known[one["experiment"]].paper == paper]
        counts = [str(verdicts.count(verdict)) for verdict in Verdict]
        lines.append(f"| {paper} | {len(verdicts)} | {' | '.join(counts)} |")
    missed = [one for one in entries if one["required"] and one["verdict"] != Verdict.REPRODUCED]
    held = sum(one["required"] for one in entries) - len(missed)
    lines.append(
        f"\nOf the claims that a release is held to (marked †), {held} hold and {len(missed)} do not.\n"
    )
    return "\n".join(lines)


def _claims(entries: Iterable[Mapping[str, Any]]) -> str:
    lines = ["| claim | published | expected | measured | verdict |", "|---|---|---|---|---|"]
    for one in entries:
        mark = " †" if one["required"] else ""
        lines.append(
            f"| {one['claim']}{mark} | {one['published']} | {one['expected']}{_unit(one)} | {_measured(one)} "
            f"| {one['verdict']} |"
        )
    return "\n".join(lines) + "\n"


def _measured(one: Mapping[str, Any]) -> str:
    if one["measured"] is None:
        return "no value"
    low, high = one["interval"]
    interval = "" if low is None else f" ({low:g} to {high:g})"
    return f"{one['measured']:g}{_unit(one)}{interval}"


def _unit(one: Mapping[str, Any]) -> str:
    return f" {one['unit']}" if one["unit"] else ""
