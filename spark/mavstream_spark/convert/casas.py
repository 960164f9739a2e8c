"""The CASAS text format: date, time, sensor, value and, now and then, an annotation.

    2010-11-04 00:03:50.209589 M003 ON Sleeping begin

The first letters of a sensor's name are its kind. Times have no zone and are read as UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mavstream_protocol import FieldSpec, FieldType, StreamSpec
from mavstream_spark.convert.lines import KIND, LINE, REASON, STREAM, Output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SensorKind:
    """Sensors with the same kind of value."""

    stream: str
    names: str
    """Regular expression of the sensors' names."""
    column: str
    type: FieldType
    true: str = ""
    """The word for true, of booleans."""
    false: str = ""
    """The word for false."""

    @property
    def value(self) -> str:
        """The value as SQL, null if the text is not of this kind."""
        if self.type is FieldType.BOOL:
            return f"CASE upper(`#value`) WHEN '{self.true}' THEN TRUE WHEN '{self.false}' THEN FALSE END"
        if self.type is FieldType.FLOAT:
            number = "try_cast(`#value` AS DOUBLE)"
            return f"IF(abs({number}) < 1e300, {number}, NULL)"
        return "`#value`"

    @property
    def expected(self) -> str:
        """A description of valid values, for reasons."""
        return f"{self.true} or {self.false}" if self.type is FieldType.BOOL else "a number"


KINDS = (
    SensorKind("motion", "MA?\\\\d+", "on", FieldType.BOOL, "ON", "OFF"),
    SensorKind("doors", "D\\\\d+", "open", FieldType.BOOL, "OPEN", "CLOSE"),
    SensorKind("temperature", "T\\\\d+", "celsius", FieldType.FLOAT),
    SensorKind("light", "LS\\\\d+", "lux", FieldType.FLOAT),
    SensorKind("power", "P\\\\d+", "watts", FieldType.FLOAT),
    # Items, burners, water, batteries and other sensors.
    SensorKind("sensors", ".*", "value", FieldType.STRING),
)
"""Kinds in the order in which their patterns are tried."""


class CasasReader:
    """Parses CASAS lines into one stream per kind of sensor."""

    def outputs(self) -> Mapping[str, Output]:
        """Return the streams that lines can belong to."""
        return {kind.stream: Output(_spec(kind), _columns(kind)) for kind in KINDS}

    def parsed(self, lines: DataFrame) -> DataFrame:
        """Return the lines with stream, time, sensor, value and activity, or the reason why not."""
        frame = lines.selectExpr("*", f"split(trim(`{LINE}`), '\\\\s+', 5) AS `#parts`")
        frame = frame.selectExpr(
            "*",
            "concat(`#parts`[0], ' ', get(`#parts`, 1)) AS `#time`",
            "get(`#parts`, 2) AS `#sensor`",
            "get(`#parts`, 3) AS `#value`",
            "get(`#parts`, 4) AS `#activity`",
        )
        when = r"'^\\d{4}-\\d{2}-\\d{2} \\d{1,2}:\\d{2}:\\d{2}(\\.\\d+)?$'"
        frame = frame.selectExpr("*", f"IF(`#time` RLIKE {when}, try_to_timestamp(`#time`), NULL) AS `#at`")
        cases = " ".join(f"WHEN `#sensor` RLIKE '^({kind.names})$' THEN '{kind.stream}'" for kind in KINDS)
        frame = frame.selectExpr("*", f"CASE {cases} END AS `#of`")
        wrong = " OR ".join(f"(`#of` = '{kind.stream}' AND ({kind.value}) IS NULL)" for kind in KINDS)
        wanted = " ".join(f"WHEN '{kind.stream}' THEN '{kind.expected}'" for kind in KINDS)
        few = "'expected date, time, sensor and value, found ', size(`#parts`), ' of these'"
        no_time = "'expected a time such as 2010-11-04 00:03:50.209589, found ', `#time`"
        no_value = f"'expected ', CASE `#of` {wanted} END, ' from sensor ', `#sensor`, ', found ', `#value`"
        frame = frame.selectExpr(
            "*",
            f"CASE WHEN size(`#parts`) < 4 THEN 'too few fields' WHEN `#at` IS NULL THEN 'no time' "
            f"WHEN {wrong} THEN 'no value' END AS `{KIND}`",
        )
        reasons = (
            f"CASE `{KIND}` WHEN 'too few fields' THEN concat({few}) WHEN 'no time' THEN concat({no_time}) "
            f"WHEN 'no value' THEN concat({no_value}) END AS `{REASON}`"
        )
        return frame.selectExpr("*", reasons, f"IF(`{KIND}` IS NULL, `#of`, NULL) AS `{STREAM}`")


def _spec(kind: SensorKind) -> StreamSpec:
    return StreamSpec(
        name=kind.stream,
        fields=(
            FieldSpec(name="at", type=FieldType.TIMESTAMP),
            FieldSpec(name="sensor", type=FieldType.STRING),
            FieldSpec(name=kind.column, type=kind.type),
            FieldSpec(name="activity", type=FieldType.STRING, nullable=True),
        ),
        event_time="at",
    )


def _columns(kind: SensorKind) -> dict[str, str]:
    return {"at": "`#at`", "sensor": "`#sensor`", kind.column: kind.value, "activity": "`#activity`"}
