"""Options, partitions and messages of the data source, without a session of Spark."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from mavstream_spark.errors import InvalidJob
from mavstream_spark.source.connection import Connection, RequestFailed
from mavstream_spark.source.options import ServerOptions, read_options, write_options

pytest.importorskip("pyspark")

from mavstream_spark.source.readers import FEW_ROWS, partitions_of
from mavstream_spark.source.writers import _portions

URL = "http://127.0.0.1:1"


def test_options_are_read_whatever_their_case() -> None:
    given = {"url": URL + "/", "STREAM": "readings", "from": "7", "failondataloss": "FALSE"}
    options = read_options({**given, "maxRowsPerTrigger": "100"})
    assert (options.kind, options.name, options.start, options.stop) == ("stream", "readings", 7, "latest")
    assert (options.fail_on_loss, options.metadata, options.most_rows, options.partitions) == (
        False,
        False,
        100,
        4,
    )
    assert options.server == ServerOptions(URL, None, 60.0)
    written = write_options({"url": URL, "stream": "s", "writer": "w", "batch": "3"}, overwrite=False)
    assert (written.stream, written.writer, written.batch) == ("s", "w", 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "expected option 'stream' or option 'query', got neither"),
        ({"stream": "a", "query": "b"}, "got both"),
        (
            {"stream": "a", "url": "ftp://x"},
            "option 'url' must be http://HOST:PORT or https://HOST, got something",
        ),
        ({"stream": "a", "url": "http://me:secret@x"}, "give a token as option 'token'"),
        ({"stream": "a", "url": "http://x:port"}, "option 'url' must be"),
        ({"stream": "a", "from": "now"}, "'earliest', 'latest' or the position of the first row, got 'now'"),
        ({"stream": "a", "to": "-1"}, "option 'to' must be 'latest' or the position behind the last row"),
        ({"stream": "a", "metadata": "yes"}, "option 'metadata' must be 'true' or 'false', got 'yes'"),
        ({"stream": "a", "numPartitions": "0"}, "option 'numPartitions' must be a number from 1, got 0"),
        (
            {"stream": "a", "maxRowsPerTriger": "1"},
            "no option 'maxrowspertriger', did you mean 'maxRowsPerTrigger'",
        ),
        ({"stream": "a", "timeout": "soon"}, "option 'timeout' must be seconds, got 'soon'"),
    ],
)
def test_wrong_options_of_a_read_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        read_options({"url": URL, **given})
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "expected option 'stream', got none"),
        ({"stream": "a", "writer": "a-b"}, "option 'writer' must be an identifier"),
        ({"stream": "a", "batch": "1"}, "option 'batch' needs option 'writer'"),
    ],
)
def test_wrong_options_of_a_write_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        write_options({"url": URL, **given}, overwrite=False)
    with pytest.raises(InvalidJob, match="rows of a stream are never replaced"):
        write_options({"url": URL, "stream": "a"}, overwrite=True)


def test_partitions_cover_a_range_once() -> None:
    for rows in (0, 1, FEW_ROWS, FEW_ROWS + 1, 3 * FEW_ROWS + 7, 100 * FEW_ROWS):
        found = partitions_of(5, 5 + rows, 4)
        assert len(found) == min(4, -(-rows // FEW_ROWS))
        assert [part.start for part in found] == [5, *(part.stop for part in found)][: len(found)]
        sizes = [part.stop - part.start for part in found]
        assert sum(sizes) == rows
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert partitions_of(9, 5, 4) == []


def test_rows_are_sent_in_portions_of_a_size() -> None:
    batches = [pa.record_batch({"n": pa.array(range(size), pa.int64())}) for size in (1, 1_000, 0, 10, 990)]
    portions = list(_portions(iter(batches), 2_048))
    assert [portion.num_rows for portion in portions][:2] == [257, 256]
    assert max(portion.nbytes for portion in portions) <= 2 * 2_048
    sent = pa.concat_tables(portions).column("n").to_pylist()
    assert sent == [n for batch in batches for n in batch.column("n").to_pylist()]


def test_a_server_that_is_away_is_named_without_the_token() -> None:
    connection = Connection(ServerOptions(URL, "sesame", 0.0))
    with pytest.raises(
        RequestFailed, match=r"http://127\.0\.0\.1:1 cannot be reached .*is the server running"
    ) as caught:
        connection.request("GET", "/v1/info")
    assert "sesame" not in f"{caught.value!r} {connection!r} {connection.server!r}"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.problem) == (str(caught.value), "unreachable")
