"""Answers from DuckDB of the queries that the runner's tests ask, over stored rows with their watermarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import duckdb
import pyarrow as pa
from tests.support.servers.running_server import RunningServer
from tests.support.spark.answers import Row, rows_of

_ARROW = "application/vnd.apache.arrow.stream"

ANSWERS: Mapping[str, str] = {
    "hot": 'SELECT "at", room, heat FROM readings WHERE heat > 90',
    "means": """
        SELECT room, avg(heat), count(*), make_timestamptz(stop) FROM (
            SELECT *, unnest([0, 1]) * 5000000 + epoch_us("at") // 5000000 * 5000000 + 5000000 AS stop
            FROM readings
        ) WHERE ahead IS NULL OR ahead < stop GROUP BY room, stop
    """,
    "rooms": """
        SELECT DISTINCT room, make_timestamptz(start), make_timestamptz(start + 20000000) FROM (
            SELECT *, epoch_us("at") // 20000000 * 20000000 AS start FROM readings
        ) WHERE ahead IS NULL OR ahead < start + 20000000
    """,
    "pairs": """
        SELECT a."at", a.heat, b.heat FROM readings a JOIN others b ON a.room = b.room
        AND epoch_us(b."at") BETWEEN epoch_us(a."at") - 1000000 AND epoch_us(a."at") + 1000000
        WHERE (a.ahead IS NULL OR a.ahead <= epoch_us(a."at"))
        AND (b.ahead IS NULL OR b.ahead <= epoch_us(b."at"))
    """,
}
"""By query: a window takes no rows that were late for it, a join none that were late."""


def answers(server: RunningServer) -> dict[str, list[Row]]:
    """Return the answers of all queries over what a server has stored."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for name in ("readings", "others"):
            database.register(f"{name}_rows", pa.Table.from_batches(_stored(server, name)))
            columns = '"at", room, heat, epoch_us(_watermark) AS ahead'
            database.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM {name}_rows")
        return {name: rows_of(database.sql(sql).to_arrow_table()) for name, sql in ANSWERS.items()}


def _stored(server: RunningServer, stream: str) -> Iterator[pa.RecordBatch]:
    after = -1
    while True:
        answer = server.http.get(
            f"/v1/streams/{stream}/tuples",
            params={"after": after, "metadata": "true"},
            headers={"accept": _ARROW},
        )
        assert answer.status_code == 200, answer.text
        with pa.ipc.open_stream(answer.content) as rows:
            yield from rows
        after = int(answer.headers["mavstream-next"])
        if after + 1 >= int(answer.headers["mavstream-end"]):
            return
