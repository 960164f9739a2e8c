"""CSV files with a header, read line by line into one stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mavstream_protocol import FieldSpec, FieldType, StreamSpec
from mavstream_spark.convert.lines import KIND, LINE, REASON, STREAM, Output
from mavstream_spark.errors import UnreadableInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CORRUPT = "#corrupt"
_TRUE = "'true', 't', 'yes', 'y', '1', 'on'"
_FALSE = "'false', 'f', 'no', 'n', '0', 'off'"
_EXPECTED = {
    FieldType.INT: "a whole number",
    FieldType.FLOAT: "a number",
    FieldType.BOOL: "true or false",
    FieldType.TIMESTAMP: "a time such as 2026-03-01T12:00:00Z",
}


class CsvReader:
    """Reads the lines of CSV files that all have one header; values hold no line breaks."""

    def __init__(self, spec: StreamSpec, header: str) -> None:
        self._spec = spec
        self._header = header
        self._names = [name.strip().strip('"') for name in header.split(",")]
        missing = [field.name for field in spec.fields if field.name not in self._names]
        if missing:
            raise UnreadableInput(
                f"the CSV header '{header}' has no column {', '.join(missing)}: "
                "name the columns as they are there"
            )
        if spec.event_time is None:
            raise UnreadableInput(
                f"stream '{spec.name}' has no column that tells the time: name a timestamp column with --time"
            )

    def outputs(self) -> Mapping[str, Output]:
        """Return the one stream."""
        columns = {field.name: _value(field) for field in self._spec.fields}
        return {self._spec.name: Output(self._spec, columns)}

    def parsed(self, lines: DataFrame) -> DataFrame:
        """Add the values as texts, and the reason where they do not fit."""
        from pyspark.sql.functions import col, from_csv, lit

        schema = ", ".join([*(f"`{name}` STRING" for name in self._names), f"`{_CORRUPT}` STRING"])
        options = {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE"}
        frame = lines.where(col(f"`{LINE}`") != lit(self._header))
        frame = frame.withColumn("#row", from_csv(col(f"`{LINE}`"), schema, options))
        count = len(self._names)
        kinds, reasons = ["WHEN `#row`.`#corrupt` IS NOT NULL THEN 'wrong number of fields'"], []
        reasons.append(
            "WHEN `#row`.`#corrupt` IS NOT NULL THEN "
            f"concat('expected {count} values, found ', size(split(`{LINE}`, ',')))"
        )
        for field in self._spec.fields:
            text = _text(field)
            if not field.nullable:
                kinds.append(f"WHEN {text} IS NULL THEN 'no {field.name}'")
                reasons.append(f"WHEN {text} IS NULL THEN 'column {field.name} is empty'")
            if field.type is not FieldType.STRING:
                wrong = f"{text} IS NOT NULL AND ({_value(field)}) IS NULL"
                kinds.append(f"WHEN {wrong} THEN 'unreadable {field.name}'")
                expected = f"column {field.name}: expected {_EXPECTED[field.type]}, found "
                reasons.append(f"WHEN {wrong} THEN concat('{expected}', {text})")
        frame = frame.selectExpr(
            "*", f"CASE {' '.join(kinds)} END AS `{KIND}`", f"CASE {' '.join(reasons)} END AS `{REASON}`"
        )
        return frame.selectExpr("*", f"IF(`{KIND}` IS NULL, '{self._spec.name}', NULL) AS `{STREAM}`")


def _text(field: FieldSpec) -> str:
    value = f"`#row`.`{field.name}`"
    return value if field.type is FieldType.STRING else f"nullif(trim({value}), '')"


def _value(field: FieldSpec) -> str:
    """Return a field's value as SQL, null where the text is none."""
    text = _text(field)
    match field.type:
        case FieldType.INT:
            return f"try_cast({text} AS BIGINT)"
        case FieldType.FLOAT:
            return f"IF(abs(try_cast({text} AS DOUBLE)) < 1e300, try_cast({text} AS DOUBLE), NULL)"
        case FieldType.BOOL:
            word = f"lower({text})"
            return f"CASE WHEN {word} IN ({_TRUE}) THEN TRUE WHEN {word} IN ({_FALSE}) THEN FALSE END"
        case FieldType.TIMESTAMP:
            return f"try_to_timestamp({text})"
    return text
