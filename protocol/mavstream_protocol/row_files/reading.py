"""How rows are read: separators, formats, names of columns, and what becomes of rows that cannot be read."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from mavstream_protocol.errors import MavstreamError

_SHOWN = 3


class BadRow(NamedTuple):
    """A row that cannot be read."""

    line: int
    """The line of the file or pipe, from 1."""
    column: str | None
    """The column as the stream has it; None if the line as a whole is wrong."""
    value: str
    reason: str

    def __str__(self) -> str:
        where = f"line {self.line}" if self.column is None else f"line {self.line}, column '{self.column}'"
        value = self.value if len(self.value) <= 60 else f"{self.value[:60]}..."
        return f"{where}: '{value}' {self.reason}"


class BadRowFound(MavstreamError):
    """A row cannot be read, and reading is to stop at such rows."""

    code = "bad_row"


@dataclass(slots=True)
class BadRows:
    """Rows that cannot be read: skipped and counted, written to a file, or the end of reading."""

    policy: str = "stop"
    """`skip`, `stop`, or the path of a CSV file that gets line, column, value and reason of each."""
    count: int = 0
    shown: list[BadRow] = field(default_factory=list)
    """The first of them."""
    _file: IO[str] | None = None

    def add(self, row: BadRow) -> None:
        """Take a row; raises BadRowFound with the policy `stop`."""
        if self.policy == "stop":
            raise BadRowFound(
                f"{row}; --bad-rows skip leaves such rows out, --bad-rows FILE also writes them down"
            )
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(row)
        if self.policy != "skip":
            self._write(row)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, row: BadRow) -> None:
        if self._file is None:
            try:
                self._file = Path(self.policy).open("w", newline="", encoding="utf-8")  # noqa: SIM115
            except OSError as error:
                reason = f"{error.strerror}: give --bad-rows another file, 'skip' or 'stop'"
                raise BadRowFound(f"file '{self.policy}' for bad rows cannot be written: {reason}") from None
            csv.writer(self._file).writerow(BadRow._fields)
        csv.writer(self._file).writerow(["" if value is None else value for value in row])
        self._file.flush()


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows are read; the defaults fit plain CSV."""

    delimiter: str = ","
    decimal: str = "."
    time_format: str | None = None
    """`unix`, `unix_ms`, `unix_us`, `unix_ns` or a format of strptime; None for ISO 8601."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """Names of columns by header, or by the name made of a header."""
    bad_rows: BadRows = field(default_factory=BadRows)

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1:
            raise ValueError(f"expected a delimiter of one character, such as ';', got '{self.delimiter}'")
        if self.decimal not in (".", ","):
            raise ValueError(f"expected a decimal point '.' or ',', got '{self.decimal}'")
        if self.decimal == self.delimiter:
            raise ValueError(f"decimal point and delimiter are both '{self.decimal}': give --delimiter ';'")
