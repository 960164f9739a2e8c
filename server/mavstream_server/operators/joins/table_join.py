"""Table join: joins each row with the rows of a stored table, in the version current at its arrival."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.batch import Batch, concatenate_batches
from mavstream_server.columns.column import Column, Ints, both_valid
from mavstream_server.columns.pieces import Steps
from mavstream_server.expressions import RowErrors, compile_expression, compile_predicate
from mavstream_server.operators.joins.pair_output import Names, sides
from mavstream_server.operators.joins.table_index import Matches, TableIndex
from mavstream_server.operators.operator import ErrorPolicy, State, SteppedOperator
from mavstream_server.tables.stored import NO_VERSION, LoadedVersion, StoredTable

_MAX_LOADED_VERSIONS = 4
"""The most versions that stay loaded: a query over streams with different lags needs several in turn."""

_NO_ROW = -1


class Key(NamedTuple):
    """A pair of columns, of the stream and of the table, that must be equal."""

    left: str
    right: str
    type: FieldType


class TableJoin(SteppedOperator):
    """Looks up rows in the table version that was current at their arrival time.

    Rows stay in their order; the matches of one row are in the order of the table.
    """

    kind = "join"

    def __init__(
        self,
        name: str,
        table: StoredTable,
        keys: Sequence[Key],
        where: Expression | None,
        compute: Sequence[tuple[str, Expression]],
        outer: bool,
        on_error: OnError,
    ) -> None:
        super().__init__(name)
        self._table = table
        self._keys = tuple(keys)
        self._right_keys = tuple(key.right for key in keys)
        self._types = [key.type for key in keys]
        self._where = None if where is None else compile_predicate(where)
        self._tested = sides(() if where is None else (where,))
        self._compute = tuple((column, compile_expression(expression)) for column, expression in compute)
        self._read = sides(expression for _, expression in compute)
        self._outer = outer
        self._errors = ErrorPolicy(on_error, self)
        self._loaded: dict[int, LoadedVersion] = {}  # by number, the least recently used one first
        self._emitted = 0

    def steps(self, port: int, batch: Batch) -> Iterator[None]:
        """Look up the rows and emit the joined rows, followed by the mark."""
        if not batch.size:
            self.emit(batch)
            return
        if self._table.refresh():
            kept = self._table.numbers
            self._loaded = {number: held for number, held in self._loaded.items() if number in kept}
        oldest, newest = self._table.span(batch.arrival)
        if oldest == newest:
            yield from self._prepare(oldest)
            yield from self._emit_joined(self._joined(batch, oldest, None), batch)
        else:
            yield from self._emit_joined((yield from self._joined_by_version(batch)), batch)

    def _prepare(self, number: int) -> Steps[None]:
        """Make the index of a version if it has none yet, in steps: there may be no file of it."""
        if number == NO_VERSION and not self._outer:
            return
        version = self._version(number)
        if version.made(self._right_keys) is None:
            index = yield from version.indexing(self._right_keys)
            version.once(self._right_keys, lambda: TableIndex(index, self._types))

    def _joined_by_version(self, batch: Batch) -> Steps[list[Batch]]:
        """Join rows of several versions, one version after the other: few of them stay loaded."""
        numbers = self._table.versions_at(batch.arrival)
        parts: list[Batch] = []
        for number in np.unique(numbers).tolist():
            yield from self._prepare(number)
            rows = np.flatnonzero(numbers == number)
            parts += self._joined(batch.take(rows), number, rows)
        if len(parts) < 2 or (numbers[1:] >= numbers[:-1]).all():
            return parts
        # Rows of several streams are interleaved: restore the order of the batch.
        whole = concatenate_batches(parts)
        assert whole.position is not None
        return [whole.take(whole.position.argsort(kind="stable"))]

    def _emit_joined(self, parts: Iterable[Batch], batch: Batch) -> Iterator[None]:
        """Emit the joined rows of a batch, the last of them with its mark, in steps."""
        last: Batch | None = None
        for part in parts:
            if last is not None:
                self.emit(last)
                yield
            first, self._emitted = self._emitted, self._emitted + part.size
            # A row may match several times: joined rows are numbered anew, so that positions are unique.
            part.position = None if batch.position is None else np.arange(first, self._emitted)
            last = part
        if last is None:
            self.emit_mark(batch.mark)
        else:
            last.mark = batch.mark
            self.emit(last)

    def _joined(self, batch: Batch, number: int, rows: Ints | None) -> Iterator[Batch]:
        """Yield the rows of a batch joined with the version of this number.

        The position of a joined row is the index of its row in the batch, mapped by `rows` if given.
        """
        if number == NO_VERSION and not self._outer:
            return
        version = self._version(number)
        index = self._index(version)
        for matches in index.matches([batch.columns[key.left] for key in self._keys], batch.size):
            asking, found = self._chosen(batch, version, matches)
            if not len(asking):
                continue
            part = batch.take(asking, ())
            part.position = asking if rows is None else rows.take(asking)
            part.mark = None
            errors = RowErrors()
            given = _columns(self._read, batch, version, asking, found)
            columns = {name: evaluate(given, len(asking), errors) for name, evaluate in self._compute}
            part = self._errors.settle(part, errors, columns)
            if part.size:
                yield part

    def _chosen(self, batch: Batch, version: LoadedVersion, matches: Matches) -> tuple[Ints, Ints]:
        """Return the pairs that satisfy the whole condition and, in a left join, the rows without a match."""
        asking, found = matches.asking, matches.found
        if self._where is not None and len(asking):
            errors = RowErrors()
            given = _columns(self._tested, batch, version, asking, found)
            kept = self._where(given, len(asking), errors)
            self._errors.record(errors)
            asking, found = asking.take(kept), found.take(kept)
        if not self._outer:
            return asking, found
        alone = np.ones(matches.stop - matches.start, dtype=bool)
        alone[asking - matches.start] = False
        if not alone.any():
            return asking, found
        others = np.flatnonzero(alone) + matches.start
        asking = np.concatenate([asking, others])
        found = np.concatenate([found, np.full(len(others), _NO_ROW)])
        order = asking.argsort(kind="stable")
        return asking.take(order), found.take(order)

    def _version(self, number: int) -> LoadedVersion:
        version = self._table.version(number)
        self._loaded.pop(number, None)
        self._loaded[number] = version
        if len(self._loaded) > _MAX_LOADED_VERSIONS:
            del self._loaded[next(iter(self._loaded))]
        return version

    def _index(self, version: LoadedVersion) -> TableIndex:
        return version.once(
            self._right_keys, lambda: TableIndex(version.index(self._right_keys), self._types)
        )

    @property
    def state_bytes(self) -> int:
        """Bytes of the loaded versions; queries that join the same table share them, but each counts them."""
        indexes = [held.made(self._right_keys) for held in self._loaded.values()]
        nbytes = sum(index.nbytes for index in indexes if isinstance(index, TableIndex))
        return nbytes + sum(held.nbytes for held in self._loaded.values())

    def save(self) -> State:
        """Return how many rows were emitted; table versions are stored with the table."""
        return {**super().save(), "emitted": self._emitted}

    def load(self, state: State) -> None:
        """Continue after the rows that were emitted."""
        super().load(state)
        self._emitted = state["emitted"]


def _columns(
    names: tuple[Names, Names],
    batch: Batch,
    version: LoadedVersion,
    asking: Ints,
    found: Ints,
) -> Mapping[str, Column]:
    # As many pairs as rows, in order and without duplicates: the columns can be used without a copy.
    whole = len(asking) == batch.size and bool((asking[1:] > asking[:-1]).all())
    columns = {
        name: batch.columns[own] if whole else batch.columns[own].take(asking) for name, own in names[0]
    }
    for name, own in names[1]:
        columns[name] = _looked_up(version, own, found)
    return columns


def _looked_up(version: LoadedVersion, name: str, found: Ints) -> Column:
    """Return the values of a table column for the rows that were found, null where none was."""
    if not len(found) or found.min() >= 0:
        return version.take(name, found)
    present = found >= 0
    if not version.rows:
        column = version.column(name)
        return Column(np.zeros(len(found), dtype=column.values.dtype), present, column.dictionary)
    taken = version.take(name, np.maximum(found, 0))
    return Column(taken.values, both_valid(taken.valid, present), taken.dictionary)
