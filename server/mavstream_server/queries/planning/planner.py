"""Query planner: checks, types and assesses queries, large ones in a process of their own.

Planning a large query takes up to some hundred milliseconds, for which no producer may wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from mavstream_protocol.admission import AdmissionEstimate
from mavstream_protocol.names import closest
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.schema import Schema
from mavstream_protocol.sql import Catalog, Statement, named_sources
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_protocol.wire.resources import Validation
from mavstream_server.catalog.seen_fields import Seen
from mavstream_server.core.errors import NotReady, Refused, TooMany
from mavstream_server.core.event_loop.side_process import SideProcess, SideProcessDied
from mavstream_server.queries.admission_control import AdmissionControl
from mavstream_server.queries.planning import validation, work
from mavstream_server.queries.planning.json_body import InvalidJson, JsonBody
from mavstream_server.queries.planning.query_size import is_large
from mavstream_server.queries.planning.seen_shapes import seen_shapes

T = TypeVar("T")
V = TypeVar("V")

_AS_THEY_ARE: Mapping[str, StreamShape] = {}
_MAX_WAITING = 32
_NICENESS = 5


class Verdict(NamedTuple):
    """The result of validating a query."""

    checked: bytes
    """A `Validation` as JSON, without the estimate."""
    admission: AdmissionEstimate | None

    def json(self) -> bytes:
        """Return the whole `Validation` as JSON."""
        estimate = b"null" if self.admission is None else self.admission.model_dump_json().encode()
        return b"%b,%b:%b}" % (self.checked[:-1], b'"admission"', estimate)

    def validation(self) -> Validation:
        """Return it as a model."""
        return Validation.model_validate_json(self.json())


class QueryPlanner:
    """Plans queries over the streams, tables and classes that there are. Bound to one event loop."""

    def __init__(
        self,
        streams: Mapping[str, StreamShape],
        tables: Mapping[str, Schema],
        classes: Callable[[], Iterable[str]],
        has_class: Callable[[str], bool],
        admission: AdmissionControl,
    ) -> None:
        """`streams` and `tables` are live views; `classes` returns the names of all classes."""
        self._streams = streams
        self._tables = tables
        self._classes = classes
        self._has_class = has_class
        self._admission = admission
        self._process = SideProcess(_NICENESS)

    async def plan(self, data: object) -> work.Planned:
        """Plan a query from its JSON form; raises InvalidQuery, TooMany, NotReady.

        The plan fits the streams, tables and classes at the moment of the return: nothing changes them before
        the caller waits.
        """
        if not is_large(data):
            return work.plan(self._small_job(data, alone=False))
        while True:
            job = await self._large_job(data, alone=False)
            found = await self._apart(work.plan, job)
            if self._is_current(job, found):
                return found

    async def validate(self, data: object) -> Verdict:
        """Validate a specification or a plan; errors are part of the verdict. Raises TooMany, NotReady."""
        if is_large(data):
            checked, applicant = await self._apart(work.check, await self._large_job(data, alone=True))
        else:
            checked, applicant = work.check(self._small_job(data, alone=True))
        return Verdict(checked, None if applicant is None else self._admission.estimate(applicant))

    async def type_plan(
        self,
        spec: QuerySpec,
        seen: Mapping[str, Seen] | None = None,
        changed: Mapping[str, StreamShape] = _AS_THEY_ARE,
    ) -> TypedPlan:
        """Infer the types of the plan of a registered query; raises InvalidQuery, TooMany, NotReady.

        `seen` are the fields that it sees, by the name of what it reads, if not all; `changed` are shapes
        that are going to be others than they are.
        """
        if not is_large(spec.plan):
            known = {**self._streams, **changed} if changed else self._streams
            return validation.type_plan(spec, seen_shapes(known, seen), self._tables)
        catalog = self._read_by(spec.plan)
        streams = seen_shapes({**catalog.streams, **changed}, seen)
        return await self._apart(validation.type_plan, spec, streams, catalog.tables)

    async def explain(self, plan: Plan) -> work.Explanation:
        """Assess the operators of a plan; raises InvalidQuery, TooMany, NotReady."""
        data = {"name": "query", "plan": plan.model_dump(mode="json", exclude_unset=True)}
        if not is_large(data):
            return work.explain(self._small_job(data, alone=False))
        return await self._apart(work.explain, await self._large_job(data, alone=False))

    async def statement(self, text: str) -> Statement:
        """Parse an SQL statement over the streams and tables; raises InvalidSql, TooMany, NotReady."""
        if not is_large(text):
            return work.statement(text, Catalog(self._streams, self._tables))
        named = await self._apart(named_sources, text)
        catalog = Catalog(_shipped(self._streams, named), _shipped(self._tables, named))
        return await self._apart(work.statement, text, catalog)

    async def statements(self, script: str) -> list[str]:
        """Split a script into statements; raises InvalidSql, TooMany, NotReady."""
        if is_large(script):
            return await self._apart(work.split_statements, script)
        return work.split_statements(script)

    async def sql_of(self, plan: Plan) -> str:
        """Write a plan as SQL; raises InvalidPlan if its streams or tables are gone, TooMany, NotReady."""
        if not is_large(plan):
            return work.sql_of(plan, Catalog(self._streams, self._tables))
        return await self._apart(work.sql_of, plan, self._read_by(plan))

    async def fingerprint(self, data: object) -> str:
        """Return a hash of a JSON value, for idempotency keys; raises InvalidObject, TooMany, NotReady."""
        if is_large(data):
            return await self._apart(work.fingerprint, data)
        return work.fingerprint(data)

    async def warm_up(self) -> None:
        """Start the process for large queries before the first of them, which would wait for it."""
        await self._process.warm_up(work.__name__)

    async def stop(self) -> None:
        """Stop the process, if it runs."""
        await self._process.stop()

    def _read_by(self, plan: Plan) -> Catalog:
        """Return the streams and tables that a plan names."""
        named = work.names({"nodes": {name: vars(node) for name, node in plan.nodes.items()}})
        return Catalog(_shipped(self._streams, named.streams), _shipped(self._tables, named.tables))

    def _small_job(self, data: object, *, alone: bool) -> work.Job:
        rates = self._admission.rates(work.names(data).streams)
        costs = self._admission.costs()
        return work.Job(data, alone, self._streams, self._tables, self._has_class, costs, rates)

    async def _large_job(self, data: object, *, alone: bool) -> work.Job:
        named = await self._apart(work.names, data) if isinstance(data, JsonBody) else work.names(data)
        costs = self._admission.costs()
        return work.Job(
            data,
            alone,
            _shipped(self._streams, named.streams),
            _shipped(self._tables, named.tables),
            frozenset(self._classes()).__contains__,
            # Conditions that were measured are too many to be sent along.
            None if costs is None else costs.without_conditions(),
            self._admission.rates(named.streams),
        )

    def _is_current(self, job: work.Job, found: work.Planned) -> bool:
        """Whether nothing that a plan depends on has changed since its job was made."""
        used = {source.stream for source in found.plan.sources}
        return (
            all(self._streams.get(name) == job.streams[name] for name in used)
            and all(self._tables.get(name) == job.tables[name] for name in found.plan.tables)
            and self._has_class(found.spec.class_)
        )

    async def _apart(self, job: Callable[..., T], *arguments: object) -> T:
        if self._process.waiting >= _MAX_WAITING:
            raise TooMany(
                f"{_MAX_WAITING} large queries wait to be planned, which is the limit: try again soon",
                code="too_many_plans",
            )
        try:
            return await self._process.run(job, *arguments)
        except InvalidJson as error:
            raise Refused(str(error.items[0].detail), code=error.code) from None
        except SideProcessDied:
            raise NotReady(
                "the process that plans large queries died and is started again: send the query again"
            ) from None


def _shipped(known: Mapping[str, V], named: Iterable[str]) -> dict[str, V]:
    """Return those of the known objects that are named, and some to suggest for names that are unknown.

    SQL finds names in any case.
    """
    missing = [name for name in named if name not in known]
    lowered = {name.lower() for name in missing}
    alike = (other for other in known if other.lower() in lowered) if lowered else ()
    near = (other for name in islice(missing, 3) for other in closest(name, known, 1))
    return {name: known[name] for name in chain(named, alike, near) if name in known}
