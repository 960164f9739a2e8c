"""Execution of slices in virtual time: outcome, duration, and remaining work after a preemption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat

import numpy as np

from mavstream_server.scheduling.view import OperatorKind, Report, Slice
from mavstream_server.simulation.model.base_operator import BaseOperator, Readers
from mavstream_server.simulation.model.operators import SimulatedOperator
from mavstream_server.simulation.model.sources import SourceOperator
from mavstream_server.simulation.run.cores import Core
from mavstream_server.simulation.scenario import Accounting, Overheads, SwitchPoint

_BLOCK = 4096
_SOURCE = OperatorKind.SOURCE
_new = tuple.__new__  # three times as fast as calling the class of a named tuple

AnyOperator = SimulatedOperator | SourceOperator


class SimulatedSliceRunner:
    """Computes slices when they start; their output to operators outside is kept in `core.outbox`."""

    def __init__(self, overheads: Overheads, exact_quantum: bool, seed: int, ring: int = 0) -> None:
        """`ring` is the number of operators in the ring of a policy that pays for empty visits, or 0."""
        taken = overheads.accounting is Accounting.CONSUMED
        point = overheads.switch_point
        self._switch = overheads.context_switch if taken else 0
        self._per_operator = point is SwitchPoint.OPERATORS
        self._per_query = point is SwitchPoint.QUERIES
        self._per_slice = point is SwitchPoint.SLICES
        self._slice = overheads.decision + overheads.transition if taken else 0
        self._call = overheads.transition if taken else 0
        self.empty_visit = overheads.empty_visit if taken else 0
        self._exact = exact_quantum
        self._ring = ring
        self.factors = _factors(overheads.noise, seed)
        """Factors of the costs of each call."""
        self.calls = self.cuts = 0
        """Calls of operators so far, and slices that were interrupted in the middle of a tuple."""

    def begin(self, core: Core, slice_: Slice, now: int) -> int:
        """Start a slice on a core; return its end time.

        Most of a run is spent here, and most of that on overhead per call, not on tuples. So the common case
        is inlined in the loop; `SimulatedOperator.work` does the same for bounded slices and for operators
        that are not plain.
        """
        operators: tuple[SimulatedOperator, ...]
        operators, tuples, duration = slice_  # type: ignore[assignment]
        number, last, outbox, factors = core.number, core.last, core.outbox, self.factors
        switch, per_operator, per_call = self._switch, self._per_operator, self._call
        time = now + self._slice
        stop = None if duration is None else time + duration
        unbounded, alone = stop is None and tuples is None, len(operators) == 1
        calls = consumed = produced = answers = response = 0
        out: Sequence[int]
        if self._ring:
            time += self._go_around(core, operators)
        if self._per_slice:
            time += switch
            core.switches += 1
        for operator in operators:
            operator.core = number
        for operator in operators:
            if not operator.ready:
                time += self.empty_visit
                core.empty_visits += 1
                continue
            if operator is not last:
                if per_operator or (self._per_query and _apart(last, operator)):
                    time += switch
                    core.switches += 1
                last = operator
            calls += 1
            begin = time = time + per_call
            factor, record = next(factors), operator.record
            if unbounded and operator.plain:
                out = batch = operator.waiting
                if operator.head:
                    out = batch = batch[operator.head :]
                    operator.head = 0
                operator.waiting = []
                count = len(batch)
                setup, cost = operator.setup * factor, operator.cost * factor
                took = int(setup + count * cost)
                if record is not None:
                    left = time + int(setup)
                    record.arrivals += batch
                    record.calls.append((count, left, cost))
                    answers += count
                    response += int(cost * (count * (count + 1) // 2)) + count * left - sum(batch)
                elif operator.selection is not None:
                    out = operator.selection.pick(batch)
                time += took
                operator.rows_in += count
                operator.rows_out += len(out)
                operator.elapsed += took
                operator.calls += 1
            else:
                progress = operator.progress
                count, out, time, spent = operator.work(time, tuples, stop, factor)
                if record is not None:
                    answers += count
                    response += spent
            consumed += count
            if out:
                produced += len(out)
                if alone:
                    if operator.readers:
                        outbox.append((operator.readers, out))
                    break
                sole_reader = operator.sole_reader
                if sole_reader is not None and sole_reader.core == number:
                    sole_reader.waiting += out
                    sole_reader.ready = True
                elif operator.readers:
                    self._share(core, operator.readers, out)
            if stop is not None and time >= stop:
                break
        self.calls += calls
        core.last, core.slice, core.begin = last, slice_, now
        core.report = _new(Report, (consumed, produced, time - now, answers, response))
        if alone and calls and operator.kind is not _SOURCE:
            if unbounded and operator.plain:
                operator.taken, progress = batch, 0
            core.single = (operator, begin, (count, out, time, 0), factor, progress)
            if self._exact and stop is not None and time > stop:
                self.cut(core, stop)
                return stop
        return time

    def _go_around(self, core: Core, operators: Sequence[SimulatedOperator]) -> int:
        """Return the cost of the empty visits between the operator that ran last and the next one."""
        before = 0 if core.last is None else core.last.number
        passed = (operators[0].number - before - 1) % self._ring
        core.empty_visits += passed
        return passed * self.empty_visit

    @staticmethod
    def _share(core: Core, readers: Readers, out: Sequence[int]) -> None:
        """Pass output to readers in the same slice at once, to others at the end of the slice."""
        for reader, port in readers:
            if reader.core == core.number:
                reader.receive(out, port)
                reader.ready = reader.has_work()
            else:
                core.outbox.append((((reader, port),), out))

    def cut(self, core: Core, now: int) -> None:
        """End a slice of one operator early; work on an unfinished tuple is kept as progress."""
        assert core.single is not None
        self.cuts += 1
        operator, begin, call, factor, progress = core.single
        done, left = operator.done_by(now, begin, call, factor, progress)
        operator.undo(begin, call)
        operator.set_progress(progress)
        core.outbox.clear()
        out: Sequence[int] = ()
        response = 0
        if done:
            _, out, begin, response = operator.work(begin, done, None, factor)
            core.outbox.append((operator.readers, out))
        operator.set_progress(left)
        operator.elapsed += max(now - begin, 0)
        answers = 0 if operator.record is None else done
        core.report = Report(done, len(out), now - core.begin, answers, response)
        core.single = None

    def serve(self, core: Core, sources: Sequence[SourceOperator], now: int, empty: int) -> int:
        """Let a core run sources, after `empty` visits of sources that had nothing; return the end time."""
        time = now + empty * self.empty_visit
        core.empty_visits += empty
        for source in sources:
            self.calls += 1
            time, batch = source.read(time + self.turn(core, source), next(self.factors))
            core.source_outbox.append((source, batch))
        core.begin = now
        return time

    def turn(self, core: Core, operator: BaseOperator) -> int:
        """Switch a core to an operator; return the cost of the context switch."""
        last = core.last
        if operator is last:
            return 0
        core.last = operator
        if self._per_operator or (self._per_query and _apart(last, operator)):
            core.switches += 1
            return self._switch
        return 0


def _apart(last: BaseOperator | None, operator: BaseOperator) -> bool:
    return last is None or last.query is not operator.query


def _factors(noise: float, seed: int) -> Iterator[float]:
    """Return the cost factors of successive calls."""
    if not noise:
        return repeat(1.0)
    random = np.random.default_rng((seed, 1))
    blocks = (random.uniform(1 - noise, 1 + noise, _BLOCK).tolist() for _ in repeat(None))
    return chain.from_iterable(blocks)
