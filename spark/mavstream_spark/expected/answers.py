"""Expected answers: what queries must answer over a dataset, worked out by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mavstream_protocol import FieldSpec, Plan, Schema, StreamShape
from mavstream_protocol.inference import infer
from mavstream_protocol.instants import format_instant
from mavstream_protocol.manifest import Manifest
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_spark.datasets.writer import Dataset, new_dataset
from mavstream_spark.plans.compiler import compile_plan
from mavstream_spark.plans.table_data import TableData, TableVersion
from mavstream_spark.progress import Progress, Silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def shapes(manifest: Manifest) -> dict[str, StreamShape]:
    """Return what plans must know of a dataset's streams."""
    return {
        name: StreamShape(data.spec(name).schema(), data.event_time)
        for name, data in manifest.streams.items()
    }


def answer(
    dataset: Dataset, plan: Plan, tables: Mapping[str, TableData] | None = None
) -> tuple[Schema, DataFrame]:
    """Return the columns and rows that a plan gives over a dataset; raises InvalidPlan, UnsupportedPlan.

    Rows are those of a query that reads the streams from their first row to their last, each stream from one
    producer in the order of its files, until no more can come. Rows arrive when they happen: this says which
    version of a table they join.
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
    """Write the answers of plans by name, a dataset of the kind `answers`, and return its manifest."""
    progress = progress or Silent()
    dataset = Dataset(spark, data)
    # All plans are checked before the first takes its time.
    answers = {name: answer(dataset, plan, tables) for name, plan in plans.items()}
    told: dict[str, object] = {
        "data": dataset.folder,
        "plans": {name: plan.model_dump(mode="json", exclude_none=True) for name, plan in plans.items()},
    }
    if tables:
        told["tables"] = {
            name: [_shown(version) for version in table.versions] for name, table in tables.items()
        }
    with new_dataset(spark, folder, "answers", told, overwrite=overwrite) as writer:
        for name, (schema, frame) in answers.items():
            with progress.step(name):
                fields = tuple(
                    FieldSpec(name=field.name, type=field.type, nullable=field.nullable) for field in schema
                )
                entry = writer.write_answer(name, fields, frame)
            progress.done(name, entry.summary())
    return writer.manifest("answers", told)


def _shown(version: TableVersion) -> dict[str, object]:
    since = None if version.since is None else format_instant(version.since)
    return {"since": since, "rows": version.rows.num_rows}
