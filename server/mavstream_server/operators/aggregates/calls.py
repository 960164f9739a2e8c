"""Calls: create the accumulators of a typed aggregate call and compute their input columns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import numpy as np

from mavstream_protocol.expressions.typed import AggregateCall
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Column
from mavstream_server.columns.keys import KeyCoder
from mavstream_server.columns.pieces import Steps
from mavstream_server.expressions import RowErrors, compile_expression
from mavstream_server.operators.aggregates.accumulator import Accumulator
from mavstream_server.operators.aggregates.counts import Count, CountDistinct
from mavstream_server.operators.aggregates.exact_sums import ExactAverage, ExactDeviation, ExactSum
from mavstream_server.operators.aggregates.picks import (
    CodedExtreme,
    Edge,
    FloatEdge,
    FloatMaximum,
    FloatMinimum,
    IntMaximum,
    IntMinimum,
)
from mavstream_server.operators.aggregates.quantiles import Quantiles
from mavstream_server.operators.aggregates.sums import (
    Deviation,
    FloatAverage,
    FloatSum,
    IntAverage,
    IntSum,
)

ORDERED = frozenset({"first", "last"})

_BY_NUMBER: dict[tuple[str, bool], type[Accumulator]] = {
    # function, whether over floats
    ("sum", False): IntSum,
    ("sum", True): FloatSum,
    ("avg", False): IntAverage,
    ("avg", True): FloatAverage,
    ("min", False): IntMinimum,
    ("min", True): FloatMinimum,
    ("max", False): IntMaximum,
    ("max", True): FloatMaximum,
    ("stddev", False): Deviation,
    ("stddev", True): Deviation,
    ("quantile", False): Quantiles,
    ("quantile", True): Quantiles,
}

_IN_ANY_ORDER: dict[tuple[str, bool], type[Accumulator]] = {
    ("sum", True): ExactSum,
    ("avg", True): ExactAverage,
    ("stddev", False): ExactDeviation,
    ("stddev", True): ExactDeviation,
}
"""Instead of those whose results depend on the order of the rows, because floats are rounded at each step."""


class CallState:
    """The state of aggregate calls: their argument, its value coder if it needs one, its accumulators.

    Texts and the values of `count(distinct ...)` are coded, so that accumulators hold integers only. Rows
    that have no defined order are folded exactly, which takes longer.
    """

    def __init__(self, call: AggregateCall, rows_ordered: bool = True) -> None:
        self.call = call
        self._makers = _BY_NUMBER if rows_ordered else _BY_NUMBER | _IN_ANY_ORDER
        self.ordered = call.function in ORDERED
        self._argument = None if call.argument is None else compile_expression(call.argument)
        type_ = None if call.argument is None else call.argument.type
        self.coder: KeyCoder | None = None
        if type_ is not None and (call.distinct or (type_ is FieldType.STRING and call.function != "count")):
            self.coder = KeyCoder([type_])
        self.make = self._maker(type_)

    def _maker(self, type_: FieldType | None) -> Callable[[], Accumulator]:
        function, coder = self.call.function, self.coder
        floats = type_ is FieldType.FLOAT
        if function == "count":
            return CountDistinct if self.call.distinct else Count
        if function in ORDERED:
            last = function == "last"
            return lambda: FloatEdge(last) if floats else Edge(last, coder)
        if coder is not None:
            better = operator.lt if function == "min" else operator.gt
            return lambda: CodedExtreme(coder, better)
        return self._makers[function, floats]

    def column(self, columns: Mapping[str, Column], size: int, errors: RowErrors) -> Steps[Column]:
        """Return the input column of the accumulators, in steps: the argument's values, coded if need be."""
        if self._argument is None:
            return Column(_ONES[:size] if size <= len(_ONES) else np.ones(size, dtype=np.int64))
        column = self._argument(columns, size, errors)
        return column if self.coder is None else Column((yield from self.coder.encoding([column], size)))

    def result(self, accumulator: Accumulator, call: AggregateCall) -> Column:
        """Return the values of all slots for a call that has this state, in the type of the call."""
        if isinstance(accumulator, Quantiles) and call.fraction is not None:
            return accumulator.at(call.fraction)
        column = accumulator.result()
        if self.call.type is FieldType.BOOL:
            column = Column(column.values.astype(np.bool_), column.valid)
        return column


_ONES = np.ones(65536, dtype=np.int64)
