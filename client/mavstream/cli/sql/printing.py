"""Output of statements and of live rows: tables for people, JSON lines and CSV for programs."""

from __future__ import annotations

import csv
import io
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson

from mavstream._sql.results import explanation, summary
from mavstream.cli.display.output import cell, complain, show_table
from mavstream_protocol import FieldSpec, FieldType

if TYPE_CHECKING:
    from mavstream_protocol.admission import AdmissionEstimate
    from mavstream_protocol.wire.sql import SqlResult

_WIDTHS = {
    FieldType.INT: 8,
    FieldType.FLOAT: 10,
    FieldType.BOOL: 5,
    FieldType.STRING: 16,
    FieldType.TIMESTAMP: 27,
}
"""Widths that columns of live rows have at least, in characters."""
_WIDEST = 40
"""Width of the widest column of live rows, in characters; longer values shift the rest of their row."""


class Format(StrEnum):
    """The format of output."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Printer(ABC):
    """Prints results of statements, and rows as they come."""

    @abstractmethod
    def show(self, result: SqlResult) -> None:
        """Print the result of a statement."""

    @abstractmethod
    def rows(self, fields: Sequence[FieldSpec], rows: Iterator[dict[str, Any]]) -> int:
        """Print rows as they come and return their number."""


class TablePrinter(Printer):
    """Tables and sentences."""

    def show(self, result: SqlResult) -> None:
        """Print a table, a tree or a sentence."""
        if result.kind == "rows":
            show_table(result.columns, result.rows, exact=True)
        elif result.kind == "explained":
            _note(explanation(result))
        else:
            _note(summary(result))
        if result.kind == "created":
            _warn(result.admission)

    def rows(self, fields: Sequence[FieldSpec], rows: Iterator[dict[str, Any]]) -> int:
        """Print aligned lines below a heading; columns become as wide as their widest value so far."""
        columns = [one.name for one in fields]
        widths = [max(len(one.name), _WIDTHS[one.type]) for one in fields]
        count = 0
        for row in rows:
            texts = ["" if value is None else cell(value) for value in row.values()]
            grown = [max(width, min(_WIDEST, len(text))) for width, text in zip(widths, texts, strict=True)]
            widths = grown
            if not count:
                _line(columns, widths)
                _line(["-" * width for width in widths], widths)
            _line(texts, widths)
            count += 1
        return count


class JsonPrinter(Printer):
    """JSON lines: an object per row, and one per statement without rows."""

    def show(self, result: SqlResult) -> None:
        """Print a line, or one per row."""
        if result.kind == "rows":
            for row in result.rows:
                _json_line(dict(zip(result.columns, row, strict=True)))
        else:
            _json_line(result.model_dump(mode="json"))

    def rows(self, fields: Sequence[FieldSpec], rows: Iterator[dict[str, Any]]) -> int:
        """Print an object per row."""
        count = 0
        for row in rows:
            _json_line(row)
            count += 1
        return count


class CsvPrinter(Printer):
    """CSV with a heading; what has no rows goes to standard error."""

    def show(self, result: SqlResult) -> None:
        """Print the rows."""
        if result.kind == "rows":
            _csv_line(result.columns)
            for row in result.rows:
                _csv_line(row)
        else:
            text = explanation(result) if result.kind == "explained" else summary(result)
            print(text, file=sys.stderr)

    def rows(self, fields: Sequence[FieldSpec], rows: Iterator[dict[str, Any]]) -> int:
        """Print a line per row."""
        _csv_line([one.name for one in fields])
        count = 0
        for row in rows:
            _csv_line(list(row.values()))
            count += 1
        return count


def printer_of(output: Format) -> Printer:
    """Return the printer of a format."""
    match output:
        case Format.TABLE:
            return TablePrinter()
        case Format.JSON:
            return JsonPrinter()
        case Format.CSV:
            return CsvPrinter()


def _note(text: str) -> None:
    print(text, flush=True)


def _warn(found: AdmissionEstimate | None) -> None:
    for text in () if found is None else found.warnings:
        complain(f"warning: {text}")


def _line(texts: Sequence[str], widths: Sequence[int]) -> None:
    padded = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
    print("  ".join(padded).rstrip(), flush=True)


def _json_line(value: Any) -> None:
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE).decode())
    sys.stdout.flush()


def _csv_line(values: Sequence[Any]) -> None:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    sys.stdout.write(line.getvalue())
    sys.stdout.flush()
