"""Key coding: dense codes for the values of one or several columns, including nulls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.columns.index import IntIndex
from mavstream_server.columns.pieces import Steps, finished, pieces
from mavstream_server.columns.text_moves import UNRESOLVED, MovedCodes

_TEXTS_AT_ONCE = 1 << 11  # texts that are looked up in one piece: each takes about 1 us
_CODE_BITS = 31  # of a packed pair, for any second code

_NULL = 0  # the code of null in every column; values follow from 1


def key_ints(column: Column, type_: FieldType) -> Ints:
    """Return values (of texts: codes) as integers that are equal exactly where the values are."""
    if type_ is FieldType.FLOAT:
        return (column.values + 0.0).view(np.int64)  # -0.0 becomes 0.0
    return column.values if column.values.dtype == np.int64 else column.values.astype(np.int64)


def distinct_codes(codes: Iterable[Ints], count: int) -> Steps[Ints]:
    """Return the distinct ones of codes below `count`, sorted."""
    found = np.zeros(count, dtype=np.bool_)
    for some in codes:
        for piece in pieces(len(some)):
            found[some[piece]] = True
            yield
    return np.flatnonzero(found)


def repacked(pairs: Ints, old: int, bits: int) -> Ints:
    """Return pairs of numbers, of which the second has `old` bits, with `bits` for it."""
    return ((pairs >> old) << bits) | (pairs & ((1 << old) - 1))


class _NumberKeys:
    """Codes for ints, timestamps, bools and floats."""

    def __init__(self, type_: FieldType) -> None:
        self._type = type_
        self._index = IntIndex()

    @property
    def count(self) -> int:
        return self._index.count + 1

    @property
    def nbytes(self) -> int:
        return self._index.nbytes

    def encoding(self, column: Column) -> Steps[Ints]:
        values = key_ints(column, self._type)
        if column.valid is None:
            return (yield from self._index.encoding(values)) + 1
        codes = np.zeros(len(values), dtype=np.int64)
        codes[column.valid] = (yield from self._index.encoding(values[column.valid])) + 1
        return codes

    def column(self, codes: Ints) -> Column:
        valid = None if len(codes) == 0 or codes.min() > _NULL else codes > _NULL
        if not self._index.count:
            return Column(self._as_values(np.zeros(len(codes), dtype=np.int64)), valid)
        return Column(self._as_values(self._index.keys.take(np.maximum(codes - 1, 0))), valid)

    def _as_values(self, ints: Ints) -> np.ndarray:
        if self._type is FieldType.FLOAT:
            return ints.view(np.float64)
        return ints.astype(np.bool_) if self._type is FieldType.BOOL else ints


class _StringKeys:
    """Codes for strings: texts are recoded into an own dictionary, once per text and generation."""

    def __init__(self) -> None:
        self._texts = Dictionary()
        self._moved = MovedCodes()

    @property
    def count(self) -> int:
        return len(self._texts) + 1

    @property
    def nbytes(self) -> int:
        return self._texts.nbytes + self._moved.nbytes

    def encoding(self, column: Column) -> Steps[Ints]:
        source = column.dictionary
        assert source is not None
        moved = self._moved.of(source)
        if column.valid is None:
            return (yield from self._move(column.values, source, moved))
        codes = np.zeros(len(column), dtype=np.int64)
        codes[column.valid] = yield from self._move(column.values[column.valid], source, moved)
        return codes

    def _move(self, values: Ints, source: Dictionary, moved: Ints) -> Steps[Ints]:
        codes = moved.take(values)
        if np.count_nonzero(codes == UNRESOLVED):
            missing = values[codes == UNRESOLVED]
            distinct, first = np.unique(missing, return_index=True)
            distinct = distinct[np.argsort(first)]
            texts, fresh = source.values, not self._texts.values
            for piece in pieces(len(distinct), _TEXTS_AT_ONCE):
                some = distinct[piece]
                if fresh:  # all texts are new: no lookups needed
                    self._texts.extend([texts[code] for code in some.tolist()])
                    moved[some] = np.arange(piece.start + 1, piece.stop + 1)
                else:
                    codes_of = self._texts.add_all([texts[code] for code in some.tolist()])
                    moved[some] = np.array(codes_of) + 1
                yield
            codes = moved.take(values)
        return codes

    def column(self, codes: Ints) -> Column:
        valid = None if len(codes) == 0 or codes.min() > _NULL else codes > _NULL
        # Shares this generation's dictionary: later texts get higher codes than those of this column, and a
        # compaction starts a new generation, so columns that were returned never change.
        return Column(np.maximum(codes - 1, 0).astype(np.int32), valid, self._texts)


class _PairIndex:
    """Codes for pairs of codes, packed into one integer with as many bits as the second code needs."""

    def __init__(self) -> None:
        self._bits = 8
        self._index = IntIndex()

    @property
    def count(self) -> int:
        return self._index.count

    @property
    def nbytes(self) -> int:
        return self._index.nbytes

    def encoding(self, first: Ints, second: Ints, second_count: int) -> Steps[Ints]:
        if second_count > 1 << self._bits:
            old, keys = self._bits, self._index.keys
            # Scattered pairs are hashed whatever their width: packing them again would only take time.
            bits = second_count.bit_length() + 2 if self._index.dense else _CODE_BITS
            packed = np.empty(len(keys), dtype=np.int64)
            for piece in pieces(len(keys)):
                packed[piece] = repacked(keys[piece], old, bits)
                yield
            self._index = yield from IntIndex.of(packed)
            self._bits = bits
        return (yield from self._index.encoding((first << self._bits) | second))

    def pairs(self, codes: Ints) -> tuple[Ints, Ints]:
        packed = self._index.keys.take(codes)
        return packed >> self._bits, packed & ((1 << self._bits) - 1)


class KeyCoder:
    """Assigns codes 0, 1, 2, ... to keys in order of first appearance; rows with equal keys get equal codes.

    Nulls are equal to each other. `compact` removes keys that are no longer in use.
    """

    def __init__(self, types: Sequence[FieldType]) -> None:
        self._types = tuple(types)
        self._columns = [_StringKeys() if t is FieldType.STRING else _NumberKeys(t) for t in self._types]
        self._pairs = [_PairIndex() for _ in self._types[1:]]
        self._compact_at = 4096

    @property
    def count(self) -> int:
        """The number of codes; all codes are below it."""
        if not self._columns:
            return 1
        return self._pairs[-1].count if self._pairs else self._columns[0].count

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(column.nbytes for column in self._columns) + sum(pair.nbytes for pair in self._pairs)

    def encode(self, columns: Sequence[Column], size: int) -> Ints:
        """Return the code of each row's key."""
        return finished(self.encoding(columns, size))

    def encoding(self, columns: Sequence[Column], size: int) -> Steps[Ints]:
        """Return the code of each row's key, in steps; nothing else may be coded before the last one."""
        if not self._columns:
            return np.zeros(size, dtype=np.int64)
        codes = yield from self._columns[0].encoding(columns[0])
        if not self._pairs:
            return codes
        for pair, coder, column in zip(self._pairs, self._columns[1:], columns[1:], strict=True):
            second = yield from coder.encoding(column)
            codes = yield from pair.encoding(codes, second, coder.count)
        return codes

    def columns(self, codes: Ints) -> list[Column]:
        """Return the key values of codes, one column per key column."""
        return [coder.column(part) for coder, part in zip(self._columns, self._unpack(codes), strict=True)]

    def worth_compacting(self) -> bool:
        """Return whether there are enough keys for a compaction to pay off."""
        return self.count >= self._compact_at

    def compact(self, live: Ints) -> Steps[Ints | None]:
        """Remove all codes but the given ones (sorted, distinct), in steps: nothing may be coded in between.

        Returns new codes by old code, or -1; None if most are live, so that all are kept.
        """
        count = self.count
        self._compact_at = max(4096, 2 * count)
        if 2 * len(live) > count:
            return None
        mapping = np.full(count, -1, dtype=np.int64)
        fresh = KeyCoder(self._types)
        for piece in pieces(len(live)):
            some = live[piece]
            mapping[some] = yield from fresh.encoding(self.columns(some), len(some))
            yield
        self._columns, self._pairs = fresh._columns, fresh._pairs
        self._compact_at = max(4096, 2 * self.count)
        return mapping

    def _unpack(self, codes: Ints) -> list[Ints]:
        parts: list[Ints] = []
        for pair in reversed(self._pairs):
            codes, second = pair.pairs(codes)
            parts.append(second)
        return [codes, *reversed(parts)] if self._columns else []

    def save(self) -> list[Column]:
        """Return the keys as columns, in code order; with one key column, null is first."""
        return self.columns(np.arange(self.count))

    def load(self, columns: Sequence[Column]) -> None:
        """Replace all keys by those of a snapshot, which get the same codes again."""
        fresh = KeyCoder(self._types)
        fresh.encode(columns, len(columns[0]) if columns else 0)
        self._columns, self._pairs = fresh._columns, fresh._pairs
        self._compact_at = max(self._compact_at, 2 * self.count)
