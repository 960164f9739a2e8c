"""Cases: random streams and a random plan over them, all from one seed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from tests.support.differential.plans import Nodes, PlanWriter
from tests.support.differential.scripts import StreamScript, random_script, random_times

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan


@dataclass(frozen=True, slots=True)
class Case:
    """A plan over scripted streams."""

    seed: str
    scripts: tuple[StreamScript, ...]
    nodes: Nodes
    root: str

    def typed(self) -> TypedPlan:
        """Return the typed plan."""
        plan = Plan.parse({"root": self.root, "nodes": self.nodes})
        return infer(plan, {s.name: StreamShape(Schema(s.fields), s.event_time) for s in self.scripts})

    def description(self) -> str:
        """Describe the case: seed, plan and contents of the streams."""
        lines = [
            f"seed {self.seed}",
            json.dumps({"root": self.root, "nodes": self.nodes}, ensure_ascii=False),
        ]
        for script in self.scripts:
            fields = ", ".join(f"{f.name} {f.type}{' null' if f.nullable else ''}" for f in script.fields)
            lines.append(
                f"{script.name} ({fields}) event_time={script.event_time} lateness={script.lateness}us"
            )
            lines += [f"  {step}" for step in script.steps]
        return "\n".join(lines)


def candidates(seed: int) -> Iterator[Case]:
    """Yield cases for a seed: some have too many rows, others none; callers take the first suitable one."""
    for attempt in count():
        yield random_case(f"{seed}.{attempt}")


def random_case(seed: str) -> Case:
    """Make the case of a seed; the plan may be refused if the writer and inference disagree."""
    random = Random(seed)
    times = random_times(random)
    scripts = tuple(random_script(random, f"s{i}", times) for i in range(random.choice((1, 2, 2, 3))))
    nodes, root = PlanWriter(random, scripts, times).write(random.choice((1, 1, 2, 2, 3, 4, 5)))
    used = {node["stream"] for node in nodes.values() if node["op"] == "source"}
    return Case(seed, tuple(s for s in scripts if s.name in used), nodes, root)
