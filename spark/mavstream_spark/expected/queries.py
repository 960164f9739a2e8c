"""Where plans come from: files, the demo, or queries that are registered on a server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from mavstream import Client
from mavstream_protocol import Plan
from mavstream_spark.errors import InvalidJob

NamedPlans = list[tuple[str, Plan]]
"""Plans, each with its name in the place it comes from."""


def plans_in_files(paths: Sequence[Path]) -> NamedPlans:
    """Read plans from JSON or YAML files; raises InvalidJob or InvalidPlan."""
    return [(path.stem, _read(path)) for path in paths]


def plans_of_the_demo() -> NamedPlans:
    """Return the queries of `mavstream demo`."""
    from mavstream_feeder.demo.queries import CLASSES

    return [(name, flow.build()) for each in CLASSES for name, flow in each.queries.items()]


def plans_on_server(url: str, token: str | None, ids: Sequence[str]) -> NamedPlans:
    """Return the plans of registered queries of a server."""
    with Client(url, token=token) as client:
        return [(id_, client.query(id_).info().spec.plan) for id_ in ids]


def by_name(named: NamedPlans) -> dict[str, Plan]:
    """Return plans by names that are valid in a dataset; raises InvalidJob if two become the same."""
    plans: dict[str, Plan] = {}
    for title, plan in named:
        name = re.sub(r"^(?=[0-9])|[^A-Za-z0-9_]", "_", title[-63:])
        if name in plans:
            raise InvalidJob(f"two queries would be named '{name}': rename a file, or give one at a time")
        plans[name] = plan
    return plans


def _read(path: Path) -> Plan:
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InvalidJob(f"plan file '{path}' cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise InvalidJob(f"plan file '{path}' is neither JSON nor YAML: {str(error)[:200]}") from None
    # The body of a registration has the plan inside.
    if isinstance(document, dict) and isinstance(document.get("plan"), dict):
        document = document["plan"]
    return Plan.parse(document)
