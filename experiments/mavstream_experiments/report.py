"""The report: a page with a verdict for every claim, the same as JSON, and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any

from mavstream_experiments.model import Experiment, Table
from mavstream_experiments.verdicts import Finding, Verdict, findings

PAGE, VERDICTS = "README.md", "verdicts.json"

_HEAD = """\
# The papers' experiments

Written by `mavstream experiments run --all`: the claims of the papers that can be simulated, what was
published, and what the simulator gives (the mean over the seeds, with its 95 % confidence interval). Every
claim stands for a band of values, and the interval decides:

- *reproduced*: the whole interval lies in the band.
- *partly*: it does not, but the whole interval lies in the claim's wider band: the direction is right, the
  size is not.
- *undecided*: the interval crosses an end of the band; more seeds would be needed.
- *not reproduced*: the whole interval lies outside the band.
- *fitted*: the whole interval lies in the band, because the calibration was chosen so. That is no evidence.
- *untested*: no seed shows what the claim is about, for example an inversion that a module could remove.

Claims that hold whatever the schedulers do are left out; [claims.md](claims.md) lists them with the reasons.
"""

_HOLDING = (Verdict.REPRODUCED, Verdict.FITTED)


def write(
    directory: Path, known: Mapping[str, Experiment], found: Mapping[str, Sequence[Table]], pictures: bool
) -> list[dict[str, Any]]:
    """Write page, JSON and pictures, and return the entries of the experiments in `found`.

    Entries of experiments that are not in `found` are kept from the JSON file that is there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    new = [
        entry(finding, len(tables))
        for name, tables in found.items()
        for finding in findings(known[name], tables)
    ]
    kept = [
        one
        for one in _read(directory / VERDICTS)
        if one["experiment"] in known and one["experiment"] not in found
    ]
    entries = sorted([*kept, *new], key=lambda one: one["experiment"])  # stable: claims stay in their order
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    (directory / VERDICTS).write_text(f"{text}\n", encoding="utf-8")
    if pictures:
        from mavstream_experiments.pictures import draw

        for name, tables in found.items():
            if known[name].picture is not None:
                draw(known[name], tables, directory / f"{name}.png")
    (directory / PAGE).write_text(page(known, entries, directory), encoding="utf-8")
    return new


def entry(finding: Finding, seeds: int) -> dict[str, Any]:
    """Return a finding for the JSON file."""
    claim, measured = finding.claim, finding.measured
    return {
        "experiment": finding.experiment,
        "claim": claim.text,
        "published": claim.published,
        "measured": _number(measured.mean),
        "interval": [_number(measured.low), _number(measured.high)],
        "unit": claim.unit,
        "expected": str(claim.holds),
        "expected_partly": None if claim.partly is None else str(claim.partly),
        "required": claim.required,
        "needs": claim.needs,
        "seeds": seeds,
        "measured_seeds": measured.seeds,
        "verdict": finding.verdict.value,
    }


def _number(value: float) -> float | None:
    return float(f"{value:.4g}") if isfinite(value) else None


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    entries: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return entries


def page(known: Mapping[str, Experiment], entries: Sequence[Mapping[str, Any]], directory: Path) -> str:
    """Return the page as Markdown, with the pictures that are in the directory."""
    parts = [_HEAD, _summary(known, entries)]
    paper = None
    for name, group in groupby(entries, key=lambda one: one["experiment"]):
        experiment = known[name]
        if experiment.paper != paper:
            paper = experiment.paper
            parts.append(f"## {paper}\n")
        parts.append(f"### {experiment.title}\n\n`{name}`: {experiment.about}\n")
        parts.append(f"*Calibration.* {experiment.calibration}\n")
        parts.append(_claims(group))
        if (directory / f"{name}.png").exists():
            parts.append(f"![{experiment.title}]({name}.png)\n")
    return "\n".join(parts)


def _summary(known: Mapping[str, Experiment], entries: Sequence[Mapping[str, Any]]) -> str:
    lines = [_row("paper", "claims", *Verdict), _row(*["---"] * (2 + len(Verdict)))]
    by_paper: dict[str, list[Mapping[str, Any]]] = {}
    for one in entries:
        by_paper.setdefault(known[one["experiment"]].paper, []).append(one)
    lines += [_counts(paper, its) for paper, its in by_paper.items()]
    lines.append(_counts("all", entries))
    required = [one["verdict"] in _HOLDING for one in entries if one["required"]]
    lines.append(
        f"\nOf the {len(required)} claims that a release is held to (marked †), {sum(required)} hold and "
        f"{len(required) - sum(required)} do not.\n"
    )
    return "\n".join(lines)


def _counts(label: str, entries: Sequence[Mapping[str, Any]]) -> str:
    verdicts = [one["verdict"] for one in entries]
    return _row(label, str(len(verdicts)), *(str(verdicts.count(verdict)) for verdict in Verdict))


def _claims(entries: Iterable[Mapping[str, Any]]) -> str:
    columns = ("claim", "published", "expected", "measured", "verdict")
    lines = [_row(*columns), _row(*["---"] * len(columns))]
    for one in entries:
        mark = " †" if one["required"] else ""
        expected = f"{one['expected']}{_unit(one)}"
        lines.append(
            _row(f"{one['claim']}{mark}", one["published"], expected, _measured(one), one["verdict"])
        )
    return "\n".join(lines) + "\n"


def _row(*columns: str) -> str:
    return f"| {' | '.join(columns)} |"


def _measured(one: Mapping[str, Any]) -> str:
    if one["measured"] is None:
        return f"no seed has {one['needs']}" if one["needs"] else "no value"
    low, high = one["interval"]
    interval = "" if low is None else f" ({low:g} to {high:g})"
    seeds, measured = one["seeds"], one["measured_seeds"]
    some = "" if measured == seeds else f", {measured} of {seeds} seeds"
    return f"{one['measured']:g}{_unit(one)}{interval}{some}"


def _unit(one: Mapping[str, Any]) -> str:
    return f" {one['unit']}" if one["unit"] else ""
