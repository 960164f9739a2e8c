"""Expected answers: the rows that queries must give over a dataset, computed by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mavstream_protocol import FieldSpec, Plan, Schema, StreamShape
from mavstream_protocol.instants import format_instant
from mavstream_protocol.manifest import Manifest
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_spark.datasets.reader import Dataset
from mavstream_spark.datasets.writer import new_dataset
from mavstream_spark.plans.compiler import compile_plan
from mavstream_spark.plans.table_data import TableData, TableVersion
from mavstream_spark.progress import Progress, Silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def shapes(manifest: Manifest) -> dict[str, StreamShape]:
    """Return schema and event time of a dataset's streams, for the inference of plans."""
    return {
        name: StreamShape(data.spec(name).schema(), data.event_time)
        for name, data in manifest.streams.items()
    }


def answer(
    dataset: Dataset, plan: Plan, tables: Mapping[str, TableData] | None = None
) -> tuple[Schema, DataFrame]:
    """Return the columns and rows that a plan gives over a dataset; raises InvalidPlan or UnsupportedPlan.

    Rows are those of a query that reads each stream from its first row to its last, from one producer in the
    order of its files, until all streams are complete. Rows arrive at their event time, which decides the
    version of a table that they join.
    """
    tables = tables or {}
    schemas = {name: table.schema for name, table in tables.items()}
    typed: TypedPlan = infer(plan, shapes(dataset.manifest), schemas)
    used = {source.stream for source in typed.sources}
    return typed.schema, compile_plan(typed, {name: dataset.stream(name) for name in used}, tables)


def write_expected(
    spark: SparkSession,
    data: str,
    folder: str,
    plans: Mapping[str, Plan],
    *,
    tables: Mapping[str, TableData] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Write the answers of plans, by name, as a dataset of the kind `answers`; returns its manifest."""
    progress = progress or Silent()
    dataset = Dataset(spark, data)
    # All plans are checked before the first one runs.
    answers = {name: answer(dataset, plan, tables) for name, plan in plans.items()}
    recorded: dict[str, object] = {
        "data": dataset.folder,
        "plans": {name: plan.model_dump(mode="json", exclude_none=True) for name, plan in plans.items()},
    }
    if tables:
        recorded["tables"] = {
            name: [_describe(version) for version in table.versions] for name, table in tables.items()
        }
    with new_dataset(spark, folder, "answers", recorded, overwrite=overwrite) as writer:
        for name, (schema, frame) in answers.items():
            with progress.step(name):
                fields = tuple(
                    FieldSpec(name=field.name, type=field.type, nullable=field.nullable) for field in schema
                )
                entry = writer.write_answer(name, fields, frame)
            progress.done(name, entry.summary())
    return writer.manifest("answers", recorded)


def _describe(version: TableVersion) -> dict[str, object]:
    since = None if version.since is None else format_instant(version.since)
    return {"since": since, "rows": version.rows.num_rows}
