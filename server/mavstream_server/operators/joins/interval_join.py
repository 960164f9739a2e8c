"""Interval join: emits pairs of rows with equal keys whose times are close to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.plans.plan import Within
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Ints
from mavstream_server.columns.keys import KeyCoder, distinct_codes
from mavstream_server.operators.joins.pair_output import PairOutput
from mavstream_server.operators.joins.side import Side
from mavstream_server.operators.joins.sorted_run import SortedRun, with_keys
from mavstream_server.operators.operator import State, SteppedOperator
from mavstream_server.operators.time_order import TimeOrder, drop_late

_LARGE_ANSWER = 4096  # pairs after which other operators may run


class IntervalJoin(SteppedOperator):
    """Joins each row with the stored rows of the other side, then stores it for rows that arrive later."""

    kind = "join"

    def __init__(
        self,
        name: str,
        keys: Sequence[tuple[str, str, FieldType]],
        columns: tuple[Sequence[str], Sequence[str]],
        within: Within,
        where: Expression | None,
        compute: Sequence[tuple[str, Expression]],
        ordered: bool,
        on_error: OnError,
    ) -> None:
        super().__init__(name, 2)
        self._keys = KeyCoder([type_ for _, _, type_ in keys])
        before, after = within.before, within.after
        self._before, self._after = before, after
        self.sides = (
            Side([left for left, _, _ in keys], columns[0], after),
            Side([right for _, right, _ in keys], columns[1], before),
        )
        self._order = TimeOrder() if ordered else None
        self._pairs = PairOutput(where, compute, on_error, self)

    def steps(self, port: int, batch: Batch) -> Iterator[None]:
        """Find partners for the rows, store the rows, and drop those that have expired."""
        if batch.size:
            yield from self._match(port, drop_late(batch, self.counters))
        if batch.mark is None:
            return
        mark = self.progress.advance(port, batch.mark)
        yield from self.sides[1 - port].expiring(self.progress.ports[port])
        if self._keys.worth_compacting():
            yield from self._compact()
        if mark is None:
            return
        if mark.gap is not None:  # pairs of a missing row are missing, too
            mark = mark._replace(gap=mark.gap + max(self._before, self._after))
        if self._order is None:
            self.emit_mark(mark)
        else:
            for ready in self._order.releasing(mark):
                if ready is not None:
                    self.emit(ready)
                yield

    def _match(self, port: int, batch: Batch) -> Iterator[None]:
        side, other = self.sides[port], self.sides[1 - port]
        batch = yield from with_keys(batch, side.keys)
        if not batch.size:
            return
        given = batch.columns
        codes = yield from self._keys.encoding([given[key] for key in side.keys], batch.size)
        columns = {name: given[name] for name in side.columns}
        rows = Batch(columns, batch.size, batch.arrival, time=batch.time, position=batch.position)
        reach = (self._before, self._after) if port == 0 else (self._after, self._before)
        if other.recent and not other.recent.comparable_with(batch.size):
            yield from other.sort_recent()
        if other.recent:
            assert rows.time is not None
            near = other.recent.partners(codes, rows.time, *reach)
            if near is not None:
                self._emit_pairs(port, rows, other.recent.rows, *near)
        asking: SortedRun | None = None
        if other.runs:
            asking = yield from SortedRun.building(rows, codes)
            for run in other.runs:
                for pairs in run.partners(asking, reach):
                    if pairs is not None:
                        self._emit_pairs(port, asking.rows, run.rows, *pairs)
                    if pairs is None or len(pairs[0]) >= _LARGE_ANSWER:
                        yield
        yield from side.adding(rows, codes, asking, self.progress.ports[1 - port])

    def _emit_pairs(self, port: int, rows: Batch, partners: Batch, asked: Ints, found: Ints) -> None:
        if port == 0:
            joined = self._pairs.rows(rows, partners, asked, found)
        else:
            joined = self._pairs.rows(partners, rows, found, asked)
        if joined is None:
            return
        if self._order is None:
            self.emit(joined[0])
        else:
            self._order.add(joined[0], 0, joined[1])

    def _compact(self) -> Iterator[None]:
        held = [codes for side in self.sides for codes in side.codes]
        live = yield from distinct_codes(held, self._keys.count)
        mapping = yield from self._keys.compact(live)  # preserves their order, so that runs stay sorted
        if mapping is not None:
            for side in self.sides:
                yield from side.recode(mapping)

    @property
    def state_bytes(self) -> int:
        """Bytes of the stored rows, their keys and the pairs that are held back for their order."""
        waiting = 0 if self._order is None else self._order.nbytes
        return waiting + self._keys.nbytes + sum(side.nbytes for side in self.sides)

    @property
    def oldest_held(self) -> int | None:
        """Earliest arrival (UTC, ns) of the pairs that are held back for their order, or None."""
        return None if self._order is None else self._order.oldest

    def save(self) -> State:
        """Return the rows and keys of both sides and the pairs that are held back."""
        runs: list[list[dict[str, Any]]] = [
            [{"rows": run.rows, "codes": run.codes} for run in side.all_runs()] for side in self.sides
        ]
        order = None if self._order is None else self._order.save()
        return {**super().save(), "keys": self._keys.save(), "runs": runs, "order": order}

    def load(self, state: State) -> None:
        """Restore the rows of both sides."""
        super().load(state)
        self._keys.load(state["keys"])
        for side, runs in zip(self.sides, state["runs"], strict=True):
            side.restore([SortedRun(run["rows"], run["codes"]) for run in runs])
        if self._order is not None:
            self._order.load(state["order"])
