"""The feeder: when tuples fall due, what files hold, what is sent again; then against a real server."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet
import pytest
from cutting import cutting_proxy
from servers import PATIENCE, RunningServer, running_server

from mavstream import AsyncClient, Client, stream
from mavstream_feeder import (
    Address,
    Feeder,
    FeedLost,
    FileSource,
    InvalidRate,
    Options,
    Patience,
    RowsRefused,
    Schedule,
    UnreadableFile,
    infer_stream,
    parse_rate,
    parse_rates,
)
from mavstream_feeder.arrivals import PoissonArrivals
from mavstream_feeder.frames import Frame, make_frame
from mavstream_feeder.lags import Lags
from mavstream_feeder.lane import Lane
from mavstream_feeder.sample import DATA, STREAMS, sample_file, write_sample
from mavstream_protocol import StreamSpec
from mavstream_protocol.tuples import decode_columns, decode_message, decode_rows, rows_of
from mavstream_protocol.wire.envelope import unseal
from mavstream_protocol.wire.feed import DataHeader, Format, from_producer

MANY = 1 << 30


def poisson(rate: str, seed: int = 1, start: float = 0.0, name: str = "readings") -> PoissonArrivals:
    return PoissonArrivals(parse_rate(rate), start, seed, name)


def kolmogorov_smirnov(gaps: np.ndarray, rate: float) -> float:
    """Return how far the gaps are from exponential, in units in which 1.63 is exceeded once in a hundred."""
    ordered = np.sort(gaps)
    expected = 1 - np.exp(-rate * ordered)
    steps = np.arange(len(ordered) + 1) / len(ordered)
    distance = max(np.max(steps[1:] - expected), np.max(expected - steps[:-1]))
    return float(distance * math.sqrt(len(ordered)))


# Arrivals


def test_gaps_are_exponential_with_the_given_rate() -> None:
    times = poisson("1500").take(20, MANY)
    gaps = np.diff(times, prepend=0.0)
    assert len(times) == pytest.approx(30_000, abs=4 * math.sqrt(30_000))
    assert gaps.mean() == pytest.approx(1 / 1500, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 1500, rel=0.03)
    assert kolmogorov_smirnov(gaps, 1500) < 1.63


def test_the_test_of_the_gaps_can_fail() -> None:
    assert kolmogorov_smirnov(np.full(1000, 1 / 1500), 1500) > 1.63
    assert kolmogorov_smirnov(np.diff(poisson("1300").take(20, MANY)), 1500) > 1.63


def test_counts_of_streams_are_as_independent_as_their_seeds() -> None:
    one = np.histogram(poisson("100", name="one").take(100, MANY), bins=1000)[0]
    two = np.histogram(poisson("100", name="two").take(100, MANY), bins=1000)[0]
    assert abs(np.corrcoef(one, two)[0, 1]) < 4 / math.sqrt(1000)
    assert one.var() == pytest.approx(one.mean(), rel=0.2)


def test_the_same_seed_gives_the_same_times_however_they_are_asked_for() -> None:
    whole = poisson("40@3s,500@2s,80").take(60, MANY)
    arrivals = poisson("40@3s,500@2s,80")
    parts = [arrivals.take(now, 7) for now in np.arange(0, 60.01, 0.05) for _ in range(10)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert not np.array_equal(whole[:50], poisson("40@3s,500@2s,80", seed=2).take(60, MANY)[:50])


def test_a_rate_of_pieces_changes_when_it_should_and_ends() -> None:
    arrivals = poisson("400@15s,0@5s,8000@5s", start=100.0)
    times = arrivals.take(math.inf, MANY) - 100.0
    slow, none, fast = (np.sum((times >= a) & (times < b)) for a, b in ((0, 15), (15, 20), (20, 25)))
    assert slow == pytest.approx(6000, abs=4 * math.sqrt(6000))
    assert none == 0
    assert fast == pytest.approx(40_000, abs=4 * math.sqrt(40_000))
    assert times[-1] < 25
    assert arrivals.head() == math.inf
    assert kolmogorov_smirnov(np.diff(times[times < 15]), 400) < 1.63
    assert kolmogorov_smirnov(np.diff(times[times >= 20]), 8000) < 1.63


def test_an_open_last_piece_goes_on() -> None:
    times = poisson("10@1s,1000").take(11, MANY)
    assert len(times) == pytest.approx(10_010, abs=450)


# Schedule


def test_what_is_due_comes_by_first_due_time() -> None:
    schedule = Schedule(seed=3)
    for number in range(27):
        schedule.add(f"s{number}", parse_rate("1500"), 0.0)
    taken: dict[str, list[float]] = {name: [] for name in schedule}
    for tick in range(1, 1001):
        due = schedule.take(tick / 1000, MANY)
        firsts = [each.times[0] for each in due]
        assert firsts == sorted(firsts)
        for each in due:
            taken[each.stream] += each.times.tolist()
        next_due = schedule.next_due()
        assert next_due is not None
        assert next_due > tick / 1000
    for name, times in taken.items():
        expected = PoissonArrivals(parse_rate("1500"), 0.0, 3, name).take(1.0, MANY)
        np.testing.assert_array_equal(times, expected)


def test_a_stream_that_joins_counts_from_then_and_leaves_the_others_alone() -> None:
    alone, joined = Schedule(seed=5), Schedule(seed=5)
    alone.add("old", parse_rate("100"), 0.0)
    joined.add("old", parse_rate("100"), 0.0)
    before = joined.take(10, MANY)
    joined.add("new", parse_rate("100"), 10.0)
    after = {each.stream: each.times for each in joined.take(20, MANY)}
    assert after["new"][0] > 10
    assert len(after["new"]) == pytest.approx(1000, abs=130)
    together = np.concatenate([before[0].times, after["old"]])
    np.testing.assert_array_equal(together, alone.take(20, MANY)[0].times)
    with pytest.raises(ValueError, match="'new' is already in the schedule"):
        joined.add("new", parse_rate("1"), 20.0)


def test_a_held_stream_waits_and_the_others_go_on() -> None:
    schedule = Schedule()
    schedule.add("held", parse_rate("100"), 0.0)
    schedule.add("free", parse_rate("100"), 0.0)
    schedule.hold("held")
    assert [each.stream for each in schedule.take(5, MANY)] == ["free"]
    assert schedule.held("held")
    schedule.release("held")
    waited = schedule.take(5, MANY)
    assert [each.stream for each in waited] == ["held"]
    assert len(waited[0].times) == pytest.approx(500, abs=90)
    schedule.remove("free")
    schedule.hold("held")
    assert schedule.next_due() is None
    assert list(schedule) == ["held"]


def test_flat_out_streams_take_turns() -> None:
    schedule = Schedule()
    schedule.add("a", parse_rate("max"), 0.0)
    schedule.add("b", parse_rate("max"), 0.0)
    assert [(each.stream, len(each.times)) for each in schedule.take(0.5, 10)] == [("a", 10), ("b", 10)]
    assert schedule.next_due() == -math.inf


def test_a_stream_whose_rate_ended_leaves() -> None:
    schedule = Schedule()
    schedule.add("short", parse_rate("100@1s"), 0.0)
    schedule.take(2, MANY)
    assert not schedule
    assert schedule.next_due() is None


# Rates


@pytest.mark.parametrize("text", ["500", "0.5", "max", "40@150s,80@50s", "40@90s,80", "0@1s,5"])
def test_rates_read_back_the_same(text: str) -> None:
    assert str(parse_rate(text)) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fast", "has the part 'fast': write tuples a second such as 500"),
        ("", "has the part ''"),
        ("-1", "has -1 tuples a second: give 0 to"),
        ("nan", "has nan tuples a second"),
        ("inf", "has inf tuples a second"),
        ("40,80@50s", "has a part without a duration ahead of its last one"),
        ("40@150,80@50s", "'150'"),
        ("40@0s,5", "lasts no time"),
        ("0", "is zero throughout"),
    ],
)
def test_rates_that_make_no_sense_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidRate, match=words):
        parse_rate(text)


def test_streams_have_their_own_rate_or_the_common_one() -> None:
    rates = parse_rates(["500", "doors=20"], ["doors", "readings"])
    assert {name: str(rate) for name, rate in rates.items()} == {"doors": "20", "readings": "500"}
    with pytest.raises(InvalidRate, match="is for 'windows', which is not fed: fed are doors"):
        parse_rates(["windows=5"], ["doors"])
    with pytest.raises(InvalidRate, match="no rate for readings"):
        parse_rates(["doors=5"], ["doors", "readings"])


# Lags


def test_lags_are_right_within_five_percent() -> None:
    lags = Lags()
    assert lags.quantile(0.5) is None
    lags.record(np.linspace(0.0005, 0.1, 1000))
    assert lags.quantile(0.5) == pytest.approx(0.05, rel=0.06)
    assert lags.quantile(0.99) == pytest.approx(0.099, rel=0.06)
    other = Lags()
    other.record(np.full(9000, 2.0))
    lags.add(other)
    assert lags.quantile(0.5) == pytest.approx(2.0, rel=0.06)


# Files

READINGS = StreamSpec.model_validate(
    {
        "name": "readings",
        "fields": [
            {"name": "at", "type": "timestamp"},
            {"name": "home", "type": "int"},
            {"name": "room", "type": "string", "nullable": True},
            {"name": "celsius", "type": "float"},
            {"name": "on", "type": "bool"},
        ],
        "event_time": "at",
    }
)
ROWS: list[dict[str, Any]] = [
    {"at": "2026-03-01T00:00:00Z", "home": 1, "room": "hall", "celsius": 20.5, "on": True},
    {"at": "2026-03-01T00:00:01.250000Z", "home": 2, "room": None, "celsius": -3.0, "on": False},
    {"at": "2026-03-01T00:00:02Z", "home": 3, "room": "cellar", "celsius": 7.25, "on": True},
]
CSV = """at,home,room,celsius,on
2026-03-01T00:00:00Z,1,hall,20.5,true
2026-03-01T00:00:01.25Z,2,,-3,false
2026-03-01T00:00:02Z,3,cellar,7.25,true
"""


def written(folder: Path, kind: str) -> Path:
    path = folder / f"readings.{kind}"
    match kind:
        case "csv":
            path.write_text(CSV)
        case "jsonl":
            path.write_bytes(b"\n".join(map(orjson.dumps, ROWS)) + b"\n")
        case "parquet":
            batch = decode_rows(READINGS.schema(), ROWS)
            pyarrow.parquet.write_table(pa.Table.from_batches([batch]), path)
    return path


def due(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int64) + 1_000_000


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_files_of_all_kinds_give_the_same_rows(tmp_path: Path, kind: str) -> None:
    source = FileSource(written(tmp_path, kind), READINGS)
    first = source.take(due(2))
    rest = source.take(due(2))
    assert rows_of(first) + rows_of(rest) == [
        {**row, "at": str(row["at"])} for row in rows_of(decode_rows(READINGS.schema(), ROWS))
    ]
    assert source.over
    assert source.take(due(1)) is None


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_file_tells_the_stream_that_it_would_make(tmp_path: Path, kind: str) -> None:
    spec = infer_stream("readings", written(tmp_path, kind))
    assert spec.schema() == READINGS.schema()
    assert spec.event_time == "at"


def test_a_file_goes_round_until_its_limit(tmp_path: Path) -> None:
    source = FileSource(written(tmp_path, "csv"), READINGS, loop=True, limit=8)
    assert source.take(due(5)).column("home").to_pylist() == [1, 2, 3, 1, 2]
    assert not source.over
    assert source.take(due(5)).column("home").to_pylist() == [3, 1, 2]
    assert source.over


def test_due_times_replace_event_times_or_take_the_place_of_missing_ones(tmp_path: Path) -> None:
    path = written(tmp_path, "csv")
    stamped = FileSource(path, READINGS, stamp=True).take(due(3))
    assert stamped.column("at").cast(pa.int64()).to_pylist() == due(3).tolist()
    assert stamped.column("home").to_pylist() == [1, 2, 3]
    path.write_text("".join(line.split(",", 1)[1] for line in CSV.splitlines(keepends=True)))
    again = FileSource(path, READINGS, stamp=True).take(due(3))
    assert again.equals(stamped)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (CSV.replace("celsius", "warmth"), "column 'warmth' is not in the stream"),
        (CSV.replace("20.5", "warm"), "cannot be read: .*warm"),
        (CSV.replace("2026-03-01T00:00:02Z", "noon"), "noon"),
        (CSV.replace("20.5", ""), "celsius"),
    ],
)
def test_files_that_do_not_fit_say_why(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "readings.csv"
    path.write_text(content)
    with pytest.raises(UnreadableFile, match=words):
        FileSource(path, READINGS).take(due(3))


def test_files_that_are_not_there_or_of_no_known_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="is not there"):
        FileSource(tmp_path / "readings.csv", READINGS).take(due(1))
    with pytest.raises(UnreadableFile, match=r"ends in '.txt': the feeder reads .csv"):
        FileSource(tmp_path / "readings.txt", READINGS).take(due(1))
    empty = tmp_path / "empty.csv"
    empty.write_text("at,home,room,celsius,on\n")
    with pytest.raises(UnreadableFile, match="no rows to go round"):
        FileSource(empty, READINGS, loop=True).take(due(1))


def test_the_sample_is_what_its_script_writes(tmp_path: Path) -> None:
    write_sample(tmp_path)
    for name, spec in STREAMS.items():
        assert (tmp_path / f"{name}.csv").read_bytes() == sample_file(name).read_bytes()
        inferred = infer_stream(name, sample_file(name))
        assert inferred.schema() == spec.schema()
        assert inferred.event_time == spec.event_time
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 300_000


# Frames and lanes


@pytest.mark.parametrize("form", list(Format))
def test_a_frame_says_what_the_protocol_says(form: Format) -> None:
    schema = READINGS.schema()
    batch = decode_rows(schema, ROWS)
    frame = make_frame("readings", 7, batch, form)
    assert frame.rows == 3
    if isinstance(frame.message, bytes):
        header, payload = unseal(frame.message)
        assert DataHeader.model_validate_json(header) == DataHeader(stream="readings", sequence=7)
        assert decode_message(schema, payload).equals(batch)
        assert frame.size == len(frame.message)
    else:
        data = from_producer.validate_json(frame.message)
        assert data.type == "data"
        assert (data.stream, data.sequence) == ("readings", 7)
        decode, part = (decode_rows, data.rows) if form is Format.ROWS else (decode_columns, data.columns)
        assert decode(schema, part).equals(batch)


def frame(sequence: int, size: int = 100) -> Frame:
    return Frame("readings", sequence, 10, b"", size)


def lane_with(frames: int, credit: int = 1000, last: int = 0) -> Lane:
    lane = Lane("readings", most_frames=5)
    lane.welcomed(last, credit)
    for number in range(frames):
        lane.made(frame(last + 1 + number))
    return lane


def sent(lane: Lane) -> list[int]:
    numbers = []
    while (each := lane.next_frame()) is not None:
        numbers.append(each.sequence)
    return numbers


def test_a_lane_sends_as_far_as_its_credit_goes() -> None:
    lane = lane_with(5, credit=250)
    assert sent(lane) == [1, 2]
    assert not lane.open
    lane.acked(1, 250)
    assert sent(lane) == [3]
    lane.acked(3, 1000)
    assert sent(lane) == [4, 5]
    lane.acked(5, 1000)
    assert lane.settled
    assert lane.open
    assert (lane.rows_sent, lane.rows_acked) == (50, 50)


def test_a_lane_waits_for_acks_when_many_frames_are_under_way() -> None:
    lane = lane_with(5)
    sent(lane)
    assert not lane.open
    lane.acked(1, 1000)
    assert lane.open


def test_a_frame_larger_than_all_credit_travels_alone() -> None:
    lane = lane_with(2, credit=60)
    assert sent(lane) == [1]
    lane.acked(1, 60)
    assert sent(lane) == [2]


def test_a_lane_goes_on_behind_what_the_server_has() -> None:
    lane = lane_with(2, last=41)
    assert sent(lane) == [42, 43]
    assert lane.next_sequence == 44


def test_after_a_reconnect_only_what_the_server_misses_is_sent_again() -> None:
    lane = lane_with(4)
    sent(lane)
    lane.acked(1, 1000)
    lane.made(frame(5))
    lane.welcomed(2, 1000)
    assert lane.rows_acked == 20
    assert sent(lane) == [3, 4, 5]
    lane.acked(5, 1000)
    assert lane.settled
    assert lane.rows_acked == 50


def test_a_server_that_forgot_or_knows_too_much_ends_the_feed() -> None:
    lane = lane_with(3)
    sent(lane)
    lane.acked(3, 1000)
    with pytest.raises(FeedLost, match="acked frame 3 and now has only 1"):
        lane.welcomed(1, 1000)
    with pytest.raises(FeedLost, match="another feeder uses the same name"):
        lane.welcomed(9, 1000)


def test_what_was_refused_for_now_is_tried_one_by_one_until_credit_returns() -> None:
    lane = lane_with(4)
    sent(lane)
    lane.acked(1, 1000)
    lane.again_from(2)
    assert sent(lane) == []
    assert lane.try_again()
    assert sent(lane) == [2]
    lane.acked(2, 1000)
    assert not lane.try_again()
    assert sent(lane) == [3, 4]


# Against a real server

NUMBERED = {"fields": [{"name": "n", "type": "int"}, {"name": "text", "type": "string"}]}
COUNT = 3000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "numbers.csv"
    path.write_text("n,text\n" + "".join(f"{n},row {n}\n" for n in range(COUNT)))
    return path


def numbered(name: str, **options: Any) -> StreamSpec:
    return StreamSpec.model_validate({"name": name, **NUMBERED, **options})


def received(client: Client, name: str, count: int) -> list[int]:
    """Return what a query over the whole stream answers, and see that there is no more."""
    query = client.submit(stream(name).project(n="n"), name=f"all_{name}", from_="earliest")
    rows = query.results().to_arrow(count, timeout=PATIENCE)
    assert client.stream_info(name).position == count
    return rows.column("n").to_pylist()


async def until(ask: Callable[[], Awaitable[bool]], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not await ask():
        assert time.monotonic() < end, f"waited in vain for: {what}"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("form", "rate"),
    [(Format.ARROW, "max"), (Format.COLUMNS, "max"), (Format.ROWS, "max"), (Format.ARROW, "3000")],
)
def test_every_row_arrives_once_and_in_order(
    server: RunningServer, numbers: Path, form: Format, rate: str
) -> None:
    spec = numbered(f"once_{form}_{rate}")
    with Client(server.url) as client:
        client.create_stream(spec)
        feeder = Feeder(Address(server.url), Options(format=form, frame_rows=70))
        feeder.add(spec.name, FileSource(numbers, spec), parse_rate(rate))
        report = asyncio.run(feeder.run())
        assert (report.sent, report.acked) == (COUNT, COUNT)
        assert received(client, spec.name, COUNT) == list(range(COUNT))


@pytest.mark.parametrize("direction", ["up", "down"])
def test_no_row_is_lost_or_doubled_when_the_connection_is_cut(
    server: RunningServer, numbers: Path, direction: Any
) -> None:
    spec = numbered(f"cut_{direction}")
    limits = [700, 900, 5000, 20_000, 1500] if direction == "up" else [500, 700, 800, 600, 900]
    with Client(server.url) as client, cutting_proxy(server.url, limits, direction) as proxy:
        client.create_stream(spec)
        feeder = Feeder(Address(proxy.url), Options(frame_rows=20), Patience(first_pause=0.01))
        feeder.add(spec.name, FileSource(numbers, spec), parse_rate("4000"))
        report = asyncio.run(feeder.run())
        assert proxy.cuts >= 3
        assert report.reconnects >= 2
        assert (report.sent, report.acked) == (COUNT, COUNT)
        assert received(client, spec.name, COUNT) == list(range(COUNT))


def test_the_feeder_goes_on_after_the_server_was_killed(tmp_path: Path, numbers: Path) -> None:
    spec = numbered("killed")

    async def feed(server: RunningServer) -> list[int]:
        feeder = Feeder(Address(server.url), Options(frame_rows=10), Patience(longest_pause=0.2))
        feeder.add(spec.name, FileSource(numbers, spec), parse_rate("1500"))
        work = asyncio.create_task(feeder.run())

        async def some() -> bool:
            return feeder.report().acked >= 300

        await until(some, "acks ahead of the kill")
        server.kill()
        again = RunningServer(tmp_path, "--port", server.url.rpartition(":")[2])
        try:
            await asyncio.to_thread(again.wait_ready)
            report = await work
            assert report.reconnects >= 1
            assert report.acked == COUNT
            with Client(again.url) as client:
                return await asyncio.to_thread(received, client, spec.name, COUNT)
        finally:
            await asyncio.to_thread(again.close)

    with running_server(tmp_path) as server:
        server.http.post("/v1/streams", json=spec.model_dump(mode="json")).raise_for_status()
        assert asyncio.run(feed(server)) == list(range(COUNT))


def test_a_stream_without_credit_waits_and_the_others_go_on(server: RunningServer, numbers: Path) -> None:
    full, free = numbered("full", quota="64KB"), numbered("free")

    async def feed() -> None:
        feeder = Feeder(Address(server.url), Options(frame_rows=500))
        async with AsyncClient(server.url) as client:
            for spec in (full, free):
                await client.create_stream(spec)
            # A query that reads nothing holds the rows of the stream, so that its quota is reached.
            await client.submit(stream("full").project(n="n"), name="holder", start_at="2100-01-01T00:00:00Z")
            feeder.add("full", FileSource(numbers, full, loop=True), parse_rate("max"))
            feeder.add("free", FileSource(numbers, free, loop=True, limit=20_000), parse_rate("max"))
            work = asyncio.create_task(feeder.run())

            async def waits() -> bool:
                report = feeder.report()
                return report.streams["full"].waiting and report.streams["free"].acked == 20_000

            await until(waits, "the full stream to wait and the other one to end")
            assert (await client.stream_info("full")).over_quota
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    asyncio.run(feed())


def test_a_stream_can_join_while_the_feeder_runs(server: RunningServer, numbers: Path) -> None:
    first, second = numbered("first"), numbered("second")

    async def feed() -> None:
        feeder = Feeder(Address(server.url), Options(frame_rows=50))
        feeder.add("first", FileSource(numbers, first), parse_rate("2000"))
        work = asyncio.create_task(feeder.run())

        async def some() -> bool:
            return feeder.report().acked > 0

        await until(some, "first acks")
        feeder.add("second", FileSource(numbers, second), parse_rate("max"))
        report = await work
        assert {name: each.acked for name, each in report.streams.items()} == {
            "first": COUNT,
            "second": COUNT,
        }

    with Client(server.url) as client:
        client.create_stream(first)
        client.create_stream(second)
        asyncio.run(feed())
        for name in ("first", "second"):
            assert received(client, name, COUNT) == list(range(COUNT))


def test_what_ends_a_feed_is_said_at_once(server: RunningServer, tmp_path: Path, numbers: Path) -> None:
    def run(address: Address, spec: StreamSpec, path: Path = numbers, **options: Any) -> None:
        feeder = Feeder(address, Options(**options), Patience(outage=0.2))
        feeder.add(spec.name, FileSource(path, spec), parse_rate("max"))
        asyncio.run(feeder.run())

    with pytest.raises(FeedLost, match="does not know missing: create them, or give --create"):
        run(Address(server.url), numbered("missing"))
    with pytest.raises(FeedLost, match=r"no server answers at http://127\.0\.0\.1:9 for"):
        run(Address("http://127.0.0.1:9"), numbered("missing"))
    future = StreamSpec.model_validate(
        {
            "name": "future",
            "fields": [{"name": "at", "type": "timestamp"}],
            "event_time": "at",
            "max_ahead": "1m",
        }
    )
    path = tmp_path / "future.csv"
    path.write_text("at\n2126-01-01T00:00:00Z\n")
    with Client(server.url) as client:
        client.create_stream(future)
    with pytest.raises(RowsRefused, match="stream 'future': the server refused rows"):
        run(Address(server.url), future, path)


def test_a_feeder_of_the_same_name_takes_over(server: RunningServer, numbers: Path) -> None:
    spec = numbered("taken")

    async def feed() -> None:
        first, second = (Feeder(Address(server.url), Options(producer="same", end=False)) for _ in range(2))
        first.add("taken", FileSource(numbers, spec, loop=True), parse_rate("100"))
        work = asyncio.create_task(first.run())

        async def some() -> bool:
            return first.report().acked > 0

        await until(some, "first acks")
        second.add("taken", FileSource(numbers, spec, limit=10), parse_rate("max"))
        await second.run()
        with pytest.raises(FeedLost, match=r"4409.*another connection of producer 'same'"):
            await work

    with Client(server.url) as client:
        client.create_stream(spec)
        asyncio.run(feed())


# The command


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mavstream", *words], capture_output=True, text=True, check=False, timeout=120
    )


def test_the_command_creates_feeds_and_reports(server: RunningServer, tmp_path: Path) -> None:
    path = written(tmp_path, "jsonl")
    done = command(
        "feed", f"made={path}", "--url", server.url, "--create", "--loop", "--limit", "500", "--rate",
        "made=max", "--stamp", "now", "-o", "json",
    )  # fmt: skip
    assert done.stderr == ""
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["acked"] == report["streams"]["made"]["sent"] == 500
    with Client(server.url) as client:
        info = client.stream_info("made")
    assert info.position == 500
    assert info.spec.event_time == "at"


def test_the_command_shows_a_table(server: RunningServer) -> None:
    done = command(
        "--url", server.url, "feed", "--sample", "--stamp", "now", "--rate", "500", "--seconds", "1"
    )
    assert done.returncode == 0, done.stderr
    assert "temperature" in done.stdout
    assert "all in" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere=nothing.csv", "--rate", "5"], 1, "nowhere"),
        (["--rate", "5"], 2, "nothing to feed"),
        (["a=b.csv", "--rate", "fast"], 2, "write tuples a second"),
        (["a=b.txt", "--create"], 2, "the feeder reads .csv"),
        (["a=b.csv", "a=c.csv"], 2, "has two files"),
        (["a=b.csv", "--stamp", "then"], 2, "is not one of file, now"),
    ],
)
def test_the_command_says_what_is_wrong(
    server: RunningServer, words: list[str], code: int, said: str
) -> None:
    done = command("--url", server.url, "feed", *words)
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert done.returncode == code
    assert "Traceback" not in done.stderr
