"""Attaching: prefixes of queries are put in charge of a trunk, and given back with the trunk's state.

All of it happens between two slices. Whoever decides has made sure that nothing can differ from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from itertools import count
from typing import TYPE_CHECKING

from mavstream_server.engine import snapshot
from mavstream_server.engine.query import QueryRequest, RunningQuery
from mavstream_server.engine.sharing.membership import Membership
from mavstream_server.engine.sharing.prefix import lower_part
from mavstream_server.engine.sharing.running_prefix import RunningPrefix
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.engine.states import OperatorState
from mavstream_server.log.cursor import Cursor
from mavstream_server.operators.fan_out import FanOut
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.queue import Queue
from mavstream_server.operators.source import Source
from mavstream_server.operators.windows.windowed import WindowedOperator
from mavstream_server.planning.instantiator import OUTPUT, RunOptions, instantiate_below

if TYPE_CHECKING:
    from mavstream_server.engine.engine import Engine


class Attaching:
    """Changes queries of an engine.

    `gathers` is told of trunks that keep rows back, `crowded` of those with a query that has no room left.
    """

    def __init__(
        self,
        engine: Engine,
        gathers: Callable[[SharedPipeline], None],
        crowded: Callable[[SharedPipeline], None],
    ) -> None:
        self._engine = engine
        self._gathers = gathers
        self._crowded = crowded
        self._numbers = count(1)

    def plant(
        self, strand: RunningPrefix, depth: int, columns: tuple[str, ...], class_name: str
    ) -> SharedPipeline:
        """Return a trunk that goes on where a strand stands, with what that has; nobody is on it yet."""
        query = strand.query
        trunk = self._planted(query, strand.chain.nodes[: depth + 1], strand, columns, class_name)
        tasks = [query.tasks[name] for name in strand.chain.nodes[1 : depth + 1]]
        for mine, task in zip(tasks, trunk.tasks.values(), strict=False):
            task.collector = copy(mine.collector)
        _take_over(trunk, strand.operators(depth))
        self._engine.plant(trunk)
        return trunk

    def replant(self, trunk: SharedPipeline, columns: tuple[str, ...]) -> SharedPipeline:
        """Return a trunk with more columns in the place of one that stands still."""
        part = trunk.parts[0]
        wider = self._planted(part.query, part.names, part.strand, columns, trunk.class_name)
        _take_over(wider, part.theirs)
        self._engine.plant(wider)
        for part in trunk.parts:
            part.settle()
            part.join(wider)
            wider.add(part)
            wider.fan_out.add(part.branch())
        trunk.parts = []
        self._engine.uproot(trunk)
        _do_as_asked(wider)
        return wider

    def graft(self, strand: RunningPrefix, depth: int, trunk: SharedPipeline) -> None:
        """Let a trunk run the prefix of a strand that agrees with it."""
        query = strand.query
        part = Membership(strand, depth, trunk)

        def change() -> None:
            self._engine.intake.withdraw(part.source)
            for name in part.names:
                query.tasks.pop(name, None)
                query.sources.pop(name, None)
            query.shared.append(part)

        self._engine.seat.rearrange(query, change)
        for own in part.own:
            if isinstance(own, WindowedOperator):
                own.clear()
        strand.part = part
        trunk.add(part)
        trunk.fan_out.add(part.branch())
        _do_as_asked(trunk)

    def cut(self, part: Membership) -> None:
        """Give a query its prefix back, with the trunk's state and with what is on its way there."""
        query, trunk = part.query, part.trunk
        trunk.fan_out.flush()
        for batch in trunk.fan_out.inputs[0]:
            part.last.emit(part.narrowed(batch))
        part.settle()
        _copy_state(part.theirs, part.own)

        def change() -> None:
            self.drop(part)
            _put_back(query, part)
            for own, their in zip(part.own[1:], part.theirs[1:], strict=True):
                _copy_queue(their.inputs[0], own.inputs[0])
            for task in part.tasks.values():
                task.state = OperatorState.READY if task.ready else OperatorState.SUSPEND

        self._engine.seat.rearrange(query, change)
        self._engine.intake.add(part.strand.chain.stream, part.source)

    def drop(self, part: Membership) -> None:
        """Let a query go without its prefix: it has ended."""
        part.settle()
        part.strand.part = None
        part.query.shared.remove(part)
        part.trunk.remove(part)
        part.trunk.fan_out.remove(part.last)
        for place, their in enumerate(part.theirs):
            if isinstance(their, WindowedOperator):
                users = [other.own[place] for other in part.trunk.parts]
                their.work_only_for(own for own in users if isinstance(own, WindowedOperator))
        _do_as_asked(part.trunk)

    def follow(self, trunk: SharedPipeline) -> None:
        """Let a trunk go by what its queries ask for now."""
        _do_as_asked(trunk)

    def _planted(
        self,
        query: RunningQuery,
        names: tuple[str, ...],
        strand: RunningPrefix,
        columns: tuple[str, ...],
        class_name: str,
    ) -> SharedPipeline:
        engine, plan = self._engine, lower_part(query.request.plan, names)
        request = QueryRequest(
            f"shared:{next(self._numbers)}", plan, class_name, RunOptions(query.request.options.on_error)
        )

        def cursor(stream: str) -> Cursor:
            return engine.intake.readers[stream].cursor(0)

        output = FanOut(
            OUTPUT,
            columns,
            engine.assembly.train,
            lambda: trunk.has_more,
            lambda: self._gathers(trunk),
            lambda: self._crowded(trunk),
        )
        network = instantiate_below(
            plan, request.options, cursor, engine.assembly.table, columns, strand.chain.needs, output
        )
        trunk = engine.assembly.of(request, network, SharedPipeline)
        return trunk


def _take_over(trunk: SharedPipeline, operators: Sequence[Operator]) -> None:
    """Let a trunk go on where other operators of the same nodes stand."""
    _copy_state(operators, list(trunk.network.operators.values())[: len(operators)])


def _copy_state(givers: Sequence[Operator], takers: Sequence[Operator]) -> None:
    """Copy states through a snapshot, so that nothing is held by two.

    What the takers have counted stays, the record of what they have shed, and which window was their first.
    """
    saved = snapshot.encode({str(place): giver.save() for place, giver in enumerate(givers)})
    states = snapshot.decode(saved)
    for place, (giver, taker) in enumerate(zip(givers, takers, strict=True)):
        counters = Counter(taker.counters)
        if isinstance(giver, Source) and isinstance(taker, Source):
            # A position alone does not tell which of the marks ahead of it were read.
            taker.cursor.restore(giver.cursor.state)
            taker.load({**states[str(place)], "shedding": taker.save()["shedding"]})
            taker.cursor.restore(giver.cursor.state)
        elif isinstance(taker, WindowedOperator):
            taker.take_over(states[str(place)])
        else:
            taker.load(states[str(place)])
        taker.counters.clear()
        taker.counters.update(counters)


def _copy_queue(source: Queue, target: Queue) -> None:
    """Let the same batches wait in another queue; its reader is told later."""
    filled, target.filled = target.filled, _nobody
    for batch in source:
        target.push(batch)
    target.filled = filled


def _put_back(query: RunningQuery, part: Membership) -> None:
    """Give operators that stood by their tasks back, bottom-up."""
    names = query.network.operators
    tasks, sources = query.tasks | part.tasks, query.sources | {part.names[0]: part.source}
    query.tasks = {name: tasks[name] for name in names if name in tasks}
    query.sources = {name: sources[name] for name in names if name in sources}


def _do_as_asked(trunk: SharedPipeline) -> None:
    """Let a trunk wait for more rows no longer, and hold no more, than any of its queries may."""
    for task in trunk.sources.values():
        task.cap = min((part.source.cap for part in trunk.parts), default=task.cap)
    limits = [limit for part in trunk.parts if (limit := part.query.request.memory_limit) is not None]
    trunk.lowest_limit = min(limits, default=None)


def _nobody() -> None:
    """Stand in for a consumer while a queue is filled by hand."""
