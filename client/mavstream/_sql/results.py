"""The results of SQL statements, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from mavstream._plans.explaining import as_html
from mavstream._results.html import table_html

if TYPE_CHECKING:
    from mavstream_protocol.wire.sql import Explained, SqlResult


class SqlResults(Sequence["SqlResult"]):
    """One result per statement, in order: typed models, whose `kind` tells what the statement did.

    `print` shows them as text.
    """

    def __init__(self, results: Sequence[SqlResult]) -> None:
        self._results = tuple(results)

    @overload
    def __getitem__(self, index: int) -> SqlResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SqlResult]: ...
    def __getitem__(self, index: int | slice) -> SqlResult | Sequence[SqlResult]:
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the last SHOW or DESCRIBE; empty without one."""
        for one in reversed(self._results):
            if one.kind == "rows":
                return [dict(zip(one.columns, row, strict=True)) for row in one.rows]
        return []

    def __repr__(self) -> str:
        return "\n".join(map(text_of, self._results))

    def _repr_html_(self) -> str:
        return "".join(
            table_html(one.columns, one.rows) if one.kind == "rows" else as_html(text_of(one))
            for one in self._results
        )


def text_of(result: SqlResult) -> str:
    """Return a result as text."""
    if result.kind == "rows":
        return "\n".join(_aligned([result.columns, *result.rows]))
    if result.kind == "selected":
        columns = ", ".join(f"{one.name} {one.type}" for one in result.fields)
        return f"checked, not registered: {columns}"
    if result.kind == "explained":
        return explanation(result)
    return summary(result)


def summary(result: SqlResult) -> str:
    """Return in a line what a statement has changed; empty for one that changed nothing."""
    match result.kind:
        case "created":
            verb = "replaced" if result.replaced else "created"
            id_ = "" if result.id is None else f" ({result.id})"
            lacks = "".join(f"\n{one}" for one in result.not_retained)
            return f"{verb} {result.object} {result.name}{id_}{lacks}"
        case "dropped":
            return f"dropped {result.object} {result.name}"
        case "changed":
            return f"{result.object} {result.name}: {result.change}"
        case "inserted":
            return f"inserted {result.rows} row{'' if result.rows == 1 else 's'} into {result.stream}"
        case _:
            return ""


def explanation(result: Explained) -> str:
    """Return EXPLAIN as text: the tree, and below it the answers in sentences."""
    lines = [result.tree, ""]
    if result.assumed_rate is not None:
        lines.append(f"No rows arrive now: costs are for {result.assumed_rate:,.0f} rows/s of each stream.")
    admission = result.admission
    if admission is None:
        lines.append("Admission: not estimated, admission control is off.")
    else:
        answer = "would be admitted" if admission.admitted else "would not be admitted"
        cost = f"{admission.cost_us_per_s:,.0f} us/s at {admission.rows_per_s:,.0f} rows/s"
        lines.append(f"Admission: {answer}; expected cost {cost}, {admission.memory_bytes:,.0f} bytes.")
        lines += [f"  {warning}" for warning in admission.warnings]
    for one in result.shared:
        more = "" if one.total == len(one.queries) else f" and {one.total - len(one.queries)} more"
        lines.append(f"Shared: {' > '.join(one.operators)} with {', '.join(one.queries)}{more}.")
    if not result.shared:
        lines.append("Shared: nothing.")
    for backend in result.backends:
        can = "supported" if backend.supported else f"not supported: {'; '.join(backend.reasons)}"
        lines.append(f"Backend {backend.name}: {can}.")
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield rows as lines with columns of equal width; the first has the headings."""
    texts = [["" if value is None else str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
