"""Writing a workload down as a file."""

from __future__ import annotations

import yaml

from mavstream_server.simulation.model import Workload


def text_of(workload: Workload) -> str:
    """Return a workload as YAML; what has its default is left out."""
    data = workload.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)
