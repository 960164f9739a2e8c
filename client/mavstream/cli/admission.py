"""What the server expects of a new query, as `mavstream query submit` and `validate` show it."""

from __future__ import annotations

from mavstream.cli.output import warn
from mavstream_protocol.admission import AdmissionEstimate


def estimate_fields(found: AdmissionEstimate | None) -> list[tuple[str, object]]:
    """Return an estimate as names and values; none where there is no estimate."""
    if found is None:
        return []
    used, cost = found.utilisation, f"{found.cost_us_per_s:.0f} us per second"
    known = used.before is not None and used.after is not None
    return [
        ("expected cost", f"{cost}, at {found.rows_per_s:.0f} rows per second"),
        ("utilisation", f"{used.before:.1%}, with it {used.after:.1%}" if known else "not known yet"),
        *((f"{target.objective} target", f"{target.kept}: {target.reason}") for target in found.targets),
    ]


def warn_of(found: AdmissionEstimate | None) -> None:
    """Print what is expected to go wrong."""
    for text in () if found is None else found.warnings:
        warn(text)
