"""The page of the demo's queries in both forms: `python -m tests.support.sql.demo_page` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.support.documents import ROOT

from mavstream_feeder.demo.queries import CLASSES
from mavstream_feeder.input.sample import STREAMS
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.sql import Catalog, plan_to_sql
from mavstream_protocol.typed_plan import StreamShape

PAGE = ROOT / "docs" / "demo-queries.md"
CATALOG = Catalog({spec.name: StreamShape(spec.schema(), spec.event_time) for spec in STREAMS.values()})
_HEAD = """\
# The queries of the demo

The 21 queries of `mavstream demo`, each as [SQL](sql.md) and as the [plan](operators.md) that the SQL
becomes, up to the names of its nodes. They run over the streams `temperature`, `humidity`, `power`,
`motion` and `doors`.
"""


def demo_page() -> str:
    """Return the page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    for one in CLASSES:
        yield f"## Class `{one.name}`, priority {one.priority}: {one.description.lower()}\n"
        for name, flow in one.queries.items():
            plan = flow.build()
            yield f"### {name}\n"
            yield f"```sql\n{plan_to_sql(plan, CATALOG)}\n```\n"
            yield f"```json\n{_shown(plan)}\n```\n"


def _shown(plan: Plan) -> str:
    """Return a plan as JSON with a line per node."""
    data = plan.model_dump(mode="json", exclude_defaults=True)
    nodes = ",\n".join(f"  {json.dumps(name)}: {json.dumps(node)}" for name, node in data["nodes"].items())
    return f'{{"root": {json.dumps(plan.root)}, "nodes": {{\n{nodes}\n}}}}'


if __name__ == "__main__":
    PAGE.write_text(demo_page())
