"""`mavstream data check`: the results of a run beside the expected answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from mavstream import Client, GapFound
from mavstream_protocol.manifest import Manifest, StreamData
from mavstream_protocol.wire.resources import QueryInfo
from mavstream_spark.errors import InvalidJob
from mavstream_spark.expected.comparison import Comparison, compared

_ENDED = "finished"


def check(folder: Path, client: Client, pairs: Mapping[str, str]) -> list[Comparison]:
    """Compare expected answers, by name, with the results of queries, by id or name."""
    manifest = _answers(folder)
    comparisons = []
    for name, query in pairs.items():
        data = manifest.stream(name)
        found = results_of(client, query, [field.name for field in data.fields])
        comparisons.append(compared(name, data.fields, expected_rows(folder, name, data), found))
    return comparisons


def pairs_of(folder: Path, client: Client, given: Sequence[str]) -> dict[str, str]:
    """Return which query is compared with which answers: as given (`ANSWERS=QUERY`), else all by name.

    Answers are named as `mavstream data expected` names them: after the file of the plan, or the query's id.
    """
    manifest = _answers(folder)
    if given:
        pairs = {}
        for text in given:
            name, equals, query = text.partition("=")
            pairs[name] = query if equals else name
            manifest.stream(name)
        return pairs
    ids = {
        id_: query.id for query in client.queries() for id_ in (query.id.replace("-", "_"), query.spec.name)
    }
    missing = [name for name in manifest.streams if name not in ids]
    if missing:
        raise InvalidJob(
            f"the server has no query '{missing[0]}', which '{folder}' has answers of: submit it under this "
            f"name, or say which query it is with --query {missing[0]}=QUERY"
        )
    return {name: ids[name] for name in manifest.streams}


def unfinished(client: Client, queries: Sequence[str]) -> list[QueryInfo]:
    """Return the queries that have not given all their results."""
    infos = [client.query(query).info() for query in queries]
    return [info for info in infos if info.state != _ENDED]


def expected_rows(folder: Path, name: str, data: StreamData) -> pa.Table:
    """Return expected answers from the files of a dataset."""
    files = sorted((folder / name).glob("**/*.parquet"))
    columns = [field.name for field in data.fields]
    tables = [parquet.read_table(file, partitioning=None, columns=columns) for file in files]
    rows = pa.concat_tables(tables) if tables else pa.table({column: [] for column in columns})
    if rows.num_rows != data.rows:
        raise InvalidJob(
            f"answers '{name}' in '{folder}' have {rows.num_rows:,} rows, their manifest says {data.rows:,}: "
            "run 'mavstream data expected' again"
        )
    return rows


def results_of(client: Client, query: str, columns: Sequence[str]) -> pa.Table:
    """Return all results that a query has given so far; raises InvalidJob if they are not those columns."""
    info = client.query(query).info()
    names = [field.name for field in info.fields]
    if names != list(columns):
        raise InvalidJob(
            f"query '{query}' has the columns {', '.join(names)}, and the expected answers have "
            f"{', '.join(columns)}: they are of another plan"
        )
    if not info.results:
        return pa.table({column: [] for column in columns})
    try:
        with client.results(query, on_gap="raise") as results:
            return results.to_arrow(limit=info.results).select(columns)
    except GapFound as error:
        raise InvalidJob(
            f"the first results of query '{query}' are no longer kept ({error}): run it on a server with "
            "larger --result-time and --result-bytes"
        ) from None


def _answers(folder: Path) -> Manifest:
    manifest = Manifest.load(folder)
    if manifest.kind != "answers":
        raise InvalidJob(
            f"'{folder}' is a dataset of the kind '{manifest.kind}': expected answers, which "
            "'mavstream data expected' writes"
        )
    return manifest
