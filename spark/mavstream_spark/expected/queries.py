"""Queries whose answers are asked for: plans in files, those of the demo, those on a server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from mavstream import Client
from mavstream_protocol import Plan
from mavstream_spark.errors import InvalidJob

Asked = list[tuple[str, Plan]]
"""Plans, each with what it is called where it comes from."""


def plans_in_files(paths: Sequence[Path]) -> Asked:
    """Read plans from JSON or YAML; raises InvalidJob, InvalidPlan."""
    return [(path.stem, _read(path)) for path in paths]


def plans_of_the_demo() -> Asked:
    """Return the queries of `mavstream demo`."""
    from mavstream_feeder.demo.queries import CLASSES

    return [(name, flow.build()) for each in CLASSES for name, flow in each.queries.items()]


def plans_on_server(url: str, token: str | None, ids: Sequence[str]) -> Asked:
    """Ask a server for the plans of queries that are registered there."""
    with Client(url, token=token) as client:
        return [(id_, client.query(id_).info().spec.plan) for id_ in ids]


def by_name(asked: Asked) -> dict[str, Plan]:
    """Return plans by names that a dataset can use; raises InvalidJob where two become one."""
    plans: dict[str, Plan] = {}
    for called, plan in asked:
        name = re.sub(r"^(?=[0-9])|[^A-Za-z0-9_]", "_", called[-63:])
        if name in plans:
            raise InvalidJob(f"two queries would be called '{name}': rename a file, or ask for one at a time")
        plans[name] = plan
    return plans


def _read(path: Path) -> Plan:
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InvalidJob(f"plan file '{path}' cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise InvalidJob(f"plan file '{path}' is neither JSON nor YAML: {str(error)[:200]}") from None
    # A file that registers a query has its plan inside.
    if isinstance(found, dict) and isinstance(found.get("plan"), dict):
        found = found["plan"]
    return Plan.parse(found)
