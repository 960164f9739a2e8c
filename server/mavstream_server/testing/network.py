"""A scripted operator network without data, for testing policies on one or several cores.

Operators are counters: they pass tuples on at a given selectivity and cost, and virtual time advances by the
work done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.policy import Policy
from mavstream_server.scheduling.registry import make_policy
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import OperatorKind, Report, Slice


class Step(NamedTuple):
    """A scripted operator and the names of its inputs; a leaf has none."""

    operator: str
    selectivity: float = 1.0
    cost: float = 100.0
    """Nanoseconds per tuple."""
    inputs: tuple[str, ...] = ()
    size: float = 64.0
    """Bytes of an output tuple."""
    input_size: float | None = None
    """Bytes of an input tuple of a leaf; None: the size of an output tuple."""


class ScriptedOperator:
    """An operator whose queue is a counter; `looks` counts how often a policy read its state."""

    def __init__(self, number: int, query: ScriptedQuery, step: Step, kind: OperatorKind, leaf: bool) -> None:
        self.number = number
        self.query = query
        self.operator = step.operator
        self.kind = kind
        self.leaf = leaf
        self.downstream: list[ScriptedOperator] = []
        self.waiting = 0
        self.running = False
        self.looks = 0
        self.progress = 0
        self.arrivals: deque[list[int]] = deque()  # [tuples, arrival], oldest first
        self.statistics = Statistics(
            cost_per_tuple=step.cost,
            selectivity=step.selectivity,
            tuple_size=step.size,
            tuples=200,
            input_size=step.size if step.input_size is None else step.input_size,
        )
        self._passed = 0.0

    @property
    def ready(self) -> bool:
        """Whether tuples are queued."""
        self.looks += 1
        return self.waiting > 0

    @property
    def queued(self) -> int:
        """Number of queued tuples."""
        self.looks += 1
        return self.waiting

    @property
    def queued_bytes(self) -> int:
        """Bytes of the queued tuples."""
        return int(self.waiting * self.statistics.tuple_size)

    @property
    def oldest(self) -> int | None:
        """Arrival time of the oldest queued tuple."""
        self.looks += 1
        return self.arrivals[0][1] if self.arrivals else None

    def put(self, tuples: int, arrival: int) -> None:
        """Queue tuples."""
        self.waiting += tuples
        self.arrivals.append([tuples, arrival])

    def take(self, tuples: int) -> list[tuple[int, int]]:
        """Remove tuples, oldest first, and return them as (tuples, arrival)."""
        self.waiting -= tuples
        taken = []
        while tuples:
            head = self.arrivals[0]
            part = min(head[0], tuples)
            taken.append((part, head[1]))
            tuples -= part
            head[0] -= part
            if not head[0]:
                self.arrivals.popleft()
        return taken

    def pass_on(self, tuples: int) -> int:
        """Return the number of output tuples for input tuples; fractions accumulate over calls."""
        self._passed += tuples * self.statistics.selectivity
        whole = int(self._passed + 1e-9)
        self._passed -= whole
        return whole


class ScriptedQuery:
    """A query: scripted operators below an output."""

    def __init__(self, id_: str, class_name: str) -> None:
        self.id = id_
        self.class_name = class_name
        self.weight = 1
        self.latency_target: int | None = None
        """Set before the query gets tuples, or with `retarget`."""
        self.operators: list[ScriptedOperator] = []
        self.paths: list[list[ScriptedOperator]] = []
        self.units: QueryUnits

    @property
    def leaves(self) -> list[ScriptedOperator]:
        """The operators at which tuples arrive."""
        return [operator for operator in self.operators if operator.leaf]


class ScriptedNetwork:
    """A view for policies, and a driver that executes their decisions on counters."""

    def __init__(self, policy: str, options: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        self.queries: dict[str, ScriptedQuery] = {}
        self.priorities: dict[str, int] = {"default": 1}
        self.random = Random(seed)
        self.now = 0
        self.answers: dict[str, int] = {}
        self.busy: dict[str, int] = {}
        """Nanoseconds of work, by class."""
        self._numbers = 0
        self._running: dict[int, Slice] = {}
        self.policy: Policy[Any] = make_policy(policy, self, options)

    def add(
        self,
        id_: str,
        chain: Sequence[tuple[str, float] | Step] | Mapping[str, Step],
        class_name: str = "default",
        root_operator: str = "output",
    ) -> ScriptedQuery:
        """Add a query, given as steps from leaf to root or as named steps; an output is added on top."""
        query = ScriptedQuery(id_, class_name)
        steps = dict(chain) if isinstance(chain, Mapping) else _linked(chain)
        (root,) = steps.keys() - {name for step in steps.values() for name in step.inputs}
        steps["#output"] = Step(root_operator, inputs=(root,))
        made: dict[str, ScriptedOperator] = {}
        for name, step in steps.items():
            self._numbers += 1
            kind = OperatorKind.OUTPUT if name == "#output" else OperatorKind.OPERATIONAL
            made[name] = ScriptedOperator(self._numbers, query, step, kind, not step.inputs)
            for below in step.inputs:
                made[below].downstream.append(made[name])
        query.operators = list(made.values())
        query.paths = [_path(leaf) for leaf in query.leaves]
        return self.add_query(query)

    def add_shared(
        self,
        id_: str,
        prefix: Sequence[Step],
        members: Sequence[Sequence[Step]],
        class_name: str = "default",
    ) -> ScriptedQuery:
        """Add a shared pipeline and its members, which are named `id/0`, `id/1`, ..."""
        pipeline = self.add(id_, prefix, class_name, "fan_out")
        for number, chain in enumerate(members):
            self.attach(id_, self.add(f"{id_}/{number}", chain, class_name))
        return pipeline

    def attach(self, id_: str, member: ScriptedQuery) -> None:
        """Let a query read the output of a shared pipeline."""
        pipeline = self.queries[id_]
        pipeline.operators[-1].downstream += member.leaves
        self._refresh(pipeline)

    def detach(self, id_: str, member: ScriptedQuery) -> None:
        """Stop a query from reading a shared pipeline."""
        pipeline = self.queries[id_]
        root = pipeline.operators[-1]
        root.downstream = [reader for reader in root.downstream if reader.query is not member]
        self._refresh(pipeline)

    def add_query(self, query: ScriptedQuery) -> ScriptedQuery:
        """Add a query that was built by hand, for example with operators shared between queries."""
        query.units = QueryUnits(query)
        self.queries[query.id] = query
        self.answers[query.id] = 0
        self.priorities.setdefault(query.class_name, 1)
        self.policy.admit(query)
        return query

    def remove(self, id_: str) -> None:
        """Remove a query with all its queued tuples."""
        query = self.queries.pop(id_)
        self.policy.retire(query)
        for operator in query.operators:
            operator.waiting = 0
            operator.arrivals.clear()

    def reclass(self, id_: str, class_name: str) -> None:
        """Move a query to another class."""
        query = self.queries[id_]
        self.policy.retire(query)
        query.class_name = class_name
        self.priorities.setdefault(class_name, 1)
        self._hand_over(query)

    def weigh(self, id_: str, weight: int) -> None:
        """Set the weight of a query in its class."""
        query = self.queries[id_]
        self.policy.retire(query)
        query.weight = weight
        self._hand_over(query)

    def retarget(self, id_: str, latency_target: int | None) -> None:
        """Set the effective latency target of a query (ns)."""
        query = self.queries[id_]
        self.policy.retire(query)
        query.latency_target = latency_target
        self._hand_over(query)

    def set_priority(self, class_name: str, priority: int) -> None:
        """Change the priority of a class."""
        self.priorities[class_name] = priority
        self.policy.reprioritised()

    def measure(self, operator: ScriptedOperator, statistics: Statistics) -> None:
        """Publish new statistics of an operator."""
        operator.statistics = statistics
        query = operator.query
        if query.units.moved(operator):
            self._refresh(query)

    def _refresh(self, query: ScriptedQuery) -> None:
        query.units = QueryUnits(query)
        self.policy.refreshed(query)
        for below in self.queries.values():
            if any(reader.query is query for reader in below.operators[-1].downstream):
                self._refresh(below)

    def switch(self, policy: str, options: Mapping[str, Any] | None = None) -> None:
        """Switch to another policy, with tuples in flight."""
        self.policy = make_policy(policy, self, options)
        for query in self.queries.values():
            self._hand_over(query)

    def _hand_over(self, query: ScriptedQuery) -> None:
        self.policy.admit(query)
        for operator in query.operators:
            if operator.waiting and not operator.running:
                self.policy.arrived(operator, self.now)

    def arrive(self, id_: str, tuples: int, leaf: int = 0) -> bool:
        """Add tuples at a query's leaf; returns whether the policy requests to be consulted."""
        return self._push(self.queries[id_].leaves[leaf], tuples, self.now)

    # Execution of the policy's decisions

    def begin(self, core: int = 0) -> Slice | None:
        """Ask the policy once for a core and begin the slice; `end` completes it."""
        slice_ = self.policy.next(core, self.now)
        if slice_ is None:
            return None
        for operator in slice_.operators:
            assert isinstance(operator, ScriptedOperator)
            assert not operator.running, f"operator {operator.number} runs on two cores at once"
            assert operator.query.id in self.queries, "an operator of a query that is gone was chosen"
            operator.running = True
        self._running[core] = slice_
        return slice_

    def end(self, core: int = 0) -> Report:
        """Process the slice of a core, advance the time by it, and report to the policy."""
        slice_ = self._running.pop(core)
        consumed = produced = elapsed = answers = response = 0
        for operator in slice_.operators:
            assert isinstance(operator, ScriptedOperator)
            cost = operator.statistics.cost_per_tuple
            most = operator.waiting if slice_.tuples is None else min(operator.waiting, slice_.tuples)
            if slice_.duration is not None:
                most = min(most, max(int((slice_.duration - elapsed) / cost), 0 if consumed else 1))
            taken = operator.take(most)
            work = int(most * cost)
            elapsed += work
            self.now += work
            self.busy[operator.query.class_name] = self.busy.get(operator.query.class_name, 0) + work
            consumed += most
            produced += self._pass_on(operator, taken)
            if operator.kind is OperatorKind.OUTPUT and not operator.downstream:
                answers += most
                response += sum(part * (self.now - arrival) for part, arrival in taken)
        for operator in slice_.operators:
            assert isinstance(operator, ScriptedOperator)
            operator.running = False
        report = Report(consumed, produced, elapsed, answers, response)
        self.policy.finished(slice_, report)
        return report

    def step(self) -> Slice | None:
        """Ask the policy once and run the slice."""
        slice_ = self.begin()
        if slice_ is not None:
            self.end()
        return slice_

    def run(self) -> list[Slice]:
        """Step until the policy has nothing to run."""
        slices = []
        while (slice_ := self.step()) is not None:
            slices.append(slice_)
        return slices

    @property
    def waiting(self) -> int:
        """Number of queued tuples of all operators."""
        return sum(operator.waiting for query in self.queries.values() for operator in query.operators)

    def _pass_on(self, operator: ScriptedOperator, taken: list[tuple[int, int]]) -> int:
        if operator.kind is OperatorKind.OUTPUT and not operator.downstream:
            tuples = sum(part for part, _ in taken)
            if operator.query.id in self.answers:
                self.answers[operator.query.id] += tuples
            return tuples
        total = 0
        for part, arrival in taken:
            produced = operator.pass_on(part)
            total += produced
            if produced:
                for reader in operator.downstream:
                    self._push(reader, produced, arrival)
        return total

    def _push(self, operator: ScriptedOperator, tuples: int, arrival: int) -> bool:
        was_empty = not operator.waiting
        operator.put(tuples, arrival)
        if operator.running:
            return False
        if was_empty:
            return self.policy.arrived(operator, self.now)
        if self.policy.watches_growth:
            self.policy.grew(operator, self.now)
        return False


def _linked(chain: Sequence[tuple[str, float] | Step]) -> dict[str, Step]:
    steps: dict[str, Step] = {}
    for index, item in enumerate(chain):
        step = item if isinstance(item, Step) else Step(*item)
        steps[f"{index}"] = step._replace(inputs=(f"{index - 1}",) if index else ())
    return steps


def _path(leaf: ScriptedOperator) -> list[ScriptedOperator]:
    path = [leaf]
    while path[-1].downstream and path[-1].kind is not OperatorKind.OUTPUT:
        path.append(path[-1].downstream[0])
    return path
