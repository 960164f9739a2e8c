"""CSV files with a header, parsed line by line into one stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

from mavstream_protocol import FieldSpec, FieldType, StreamSpec
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_spark.convert.lines import KIND, LINE, REASON, STREAM, Output
from mavstream_spark.errors import InvalidJob, UnreadableInput

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
    """Parses lines of CSV files with the same header; values must not contain line breaks."""

    def __init__(self, spec: StreamSpec, header: str) -> None:
        self._spec = spec
        self._header = header
        self._names = [name.strip().strip('"') for name in header.split(",")]
        missing = [field.name for field in spec.fields if field.name not in self._names]
        if missing:
            raise UnreadableInput(
                f"the CSV header '{header}' has no column {', '.join(missing)}: use the names of the header"
            )
        if spec.event_time is None:
            raise UnreadableInput(
                f"stream '{spec.name}' has no event time: name a timestamp column with --time"
            )

    def outputs(self) -> Mapping[str, Output]:
        """Return the stream that lines belong to."""
        columns = {field.name: _value(field) for field in self._spec.fields}
        return {self._spec.name: Output(self._spec, columns)}

    def parsed(self, lines: DataFrame) -> DataFrame:
        """Return the lines with their values as text, and the reason where these are wrong."""
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
    """Return the value of a field as SQL, null if the text is not of its type."""
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


def parse_fields(stream: str, text: str, event_time: str | None) -> StreamSpec:
    """Return the stream with fields written like `at timestamp, room string, celsius float null`.

    The event time is the first timestamp unless it is given. Raises InvalidJob.
    """
    try:
        fields = tuple(_field(part.split()) for part in text.split(","))
        if event_time is None:
            event_time = next((each.name for each in fields if each.type is FieldType.TIMESTAMP), None)
        return StreamSpec(name=stream, fields=fields, event_time=event_time)
    except (ValidationError, ValueError) as error:
        reason = _reason(error) if isinstance(error, ValidationError) else str(error)
        raise InvalidJob(
            f"fields '{text}' are not a stream: {reason}; write them like 'at timestamp, room string null'"
        ) from None


def _reason(error: ValidationError) -> str:
    first = causes(error.errors())[0]
    return sentence(first, quoted(first, "the stream"))


def _field(words: list[str]) -> FieldSpec:
    if len(words) not in (2, 3) or words[2:] not in ([], ["null"]):
        raise ValueError(f"'{' '.join(words)}' is not a name, a type and optionally the word null")
    return FieldSpec(name=words[0], type=FieldType(words[1]), nullable=len(words) == 3)
