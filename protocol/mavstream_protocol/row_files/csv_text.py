"""Lines of CSV as columns of text, with the numbers of the lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv

from mavstream_protocol.row_files.reading import BadRow, Reading

_BOM = b"\xef\xbb\xbf"


def read_header(line: bytes, reading: Reading) -> tuple[str, ...]:
    """Return the headers of the columns, without a byte order mark."""
    line = line.removeprefix(_BOM).strip(b"\r\n")
    if not line.strip():
        raise ValueError("the first line is empty: it must have the names of the columns")
    parsing = pyarrow.csv.ParseOptions(delimiter=reading.delimiter)
    names = pyarrow.csv.ReadOptions(autogenerate_column_names=True)
    texts = pyarrow.csv.ConvertOptions(column_types=_all_text(len(line)), strings_can_be_null=False)
    row = pyarrow.csv.read_csv(pa.BufferReader(line + b"\n"), names, parsing, texts)
    return tuple(str(column[0].as_py()) for column in row.columns)


def _all_text(count: int) -> dict[str, pa.DataType]:
    return {f"f{place}": pa.string() for place in range(count)}


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows of text of some lines."""

    columns: pa.Table
    bad: list[BadRow]
    """Lines with another number of columns, which are not among the rows."""
    _content: bytes
    _first_line: int

    def lines(self) -> list[int]:
        """Return the number of each row's line; empty lines are not rows."""
        wrong = {row.line for row in self.bad}
        filled = enumerate(self._content.split(b"\n"), self._first_line)
        return [line for line, text in filled if text.strip(b"\r") and line not in wrong]


def read_text(
    content: bytes, names: Sequence[str], first_line: int, reading: Reading, text_can_be_null: bool
) -> TextRows:
    """Return the rows of complete lines."""
    wrong: list[tuple[int, int, str]] = []

    def skip(row: pyarrow.csv.InvalidRow) -> str:
        wrong.append((row.number, row.actual_columns, row.text))
        return "skip"

    columns = pyarrow.csv.read_csv(
        pa.BufferReader(content),
        pyarrow.csv.ReadOptions(
            column_names=list(names), use_threads=False, block_size=max(len(content) + 1, 1 << 16)
        ),
        pyarrow.csv.ParseOptions(delimiter=reading.delimiter, invalid_row_handler=skip),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=text_can_be_null,
            quoted_strings_can_be_null=False,
        ),
    )
    bad: list[BadRow] = []
    if wrong:
        filled = [line for line, text in enumerate(content.split(b"\n"), first_line) if text.strip(b"\r")]
        bad = [
            BadRow(filled[number - 1], None, text, f"has {count} columns, expected {len(names)}")
            for number, count, text in wrong
        ]
    return TextRows(columns, bad, content, first_line)
