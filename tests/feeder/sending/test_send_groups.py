"""Send groups: each row is sent once, when it is due, under late acks, short credit and changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from mavstream_feeder import FileSource, Options, Recorded, parse_rate
from mavstream_feeder.pacing.arrivals import Arrivals
from mavstream_feeder.pacing.lags import Lags
from mavstream_feeder.sending.dispatch import Dispatcher
from mavstream_feeder.sending.feeds import Feed
from mavstream_feeder.sending.outbox import Outbox
from mavstream_protocol import StreamSpec
from mavstream_protocol.producer import ProducerState, SendWindow
from mavstream_protocol.tuples import read_message
from mavstream_protocol.wire.envelope import unseal

FIELDS = [{"name": "at", "type": "timestamp"}, {"name": "n", "type": "int"}]
SCHEMA = StreamSpec.model_validate({"name": "any", "fields": FIELDS}).schema()
FILE_ROWS = 300
EPOCH = 1_790_000_000_000_000
CREDIT = 1 << 20
LINGER = 0.001


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "numbers.csv"
    path.write_text("n\n" + "".join(f"{n}\n" for n in range(FILE_ROWS)))
    return path


class World:
    """A dispatcher on a hand-advanced clock, and a server that records the messages."""

    def __init__(self, path: Path, *, multi_stream: bool = True, **options: Any) -> None:
        self.now = self.last = 0.0
        self.options = Options(**{"seed": 5, "linger": LINGER, **options})
        self.lags = Lags()
        self.outbox = Outbox(ProducerState("test"), self.lags)
        self.outbox.multi_stream = multi_stream
        self.dispatcher = Dispatcher(self.options, self.outbox, self.lags)
        self.dispatcher.epoch_us = EPOCH
        self.path = path
        self.feeds: dict[str, Feed] = {}
        self.times: dict[str, Arrivals] = {}
        # Received by stream: sequences of frames, rows as (due, n), and the times at which they were sent.
        self.sequences: dict[str, list[int]] = {}
        self.rows: dict[str, list[tuple[int, int]]] = {}
        self.left: dict[str, list[float]] = {}
        self.messages: list[list[tuple[str, int, int]]] = []

    def add(
        self,
        name: str,
        rate: str,
        credit: int = CREDIT,
        fields: Sequence[Mapping[str, Any]] = FIELDS,
        **source: Any,
    ) -> SendWindow:
        spec = StreamSpec.model_validate({"name": name, "fields": fields, "event_time": "at"})
        parsed = parse_rate(rate)
        source = {"loop": True, "recorded": parsed if isinstance(parsed, Recorded) else None, **source}
        feed, again = (
            Feed(name, FileSource(self.path, spec, stamp=True, **source), parsed, lags=lags)
            for lags in (self.lags, Lags())
        )
        self.feeds[name] = feed
        self.times[name] = again.arrivals(self.now, self.options.seed)
        self.sequences[name], self.rows[name], self.left[name] = [], [], []
        feed.windows[name].resume(0, credit)
        self.dispatcher.add(feed)
        self.dispatcher.disband()
        self.dispatcher.begin(lambda: self.now)
        return feed.windows[name]

    def step(self, late: float = 0.0, spare: float = 1.0) -> bool:
        """Send at the next due time, or some seconds later; returns whether there was one."""
        moment = self.dispatcher.next_moment(self.last)
        if moment is None:
            return False
        self.now = self.last = max(moment, self.now) + late
        self.outbox.send_waiting(feed.windows[name] for name, feed in self.feeds.items())
        self.dispatcher.send_due(self.now)
        self.dispatcher.prepare(self.now, lambda: self.now - spare)
        self.take_in()
        return True

    def run(self, until: float) -> None:
        while self.now < until and self.step():
            self.ack()

    def take_in(self) -> None:
        messages = self.outbox.take()
        for message in messages:
            assert isinstance(message, bytes)
            head, payload = unseal(message)
            header, batch = orjson.loads(head), read_message(SCHEMA, payload)
            frames = header.get("frames") or [(header["stream"], header["sequence"], batch.num_rows)]
            self.messages.append(frames)
            begin = 0
            for stream, sequence, count in frames:
                rows = batch.slice(begin, count)
                begin += count
                self.sequences[stream].append(sequence)
                due = rows.column("at").cast("int64").to_pylist()
                self.rows[stream] += zip(due, rows.column("n").to_pylist(), strict=True)
                self.left[stream] += [self.now] * count
            assert begin == batch.num_rows
        if messages:
            self.lags.sent(self.now)

    def ack(self, *streams: str, credit: int = CREDIT) -> None:
        for stream in streams or self.feeds:
            if self.sequences[stream]:
                self.feeds[stream].windows[stream].ack(self.sequences[stream][-1], credit)
        self.dispatcher.release()

    def check(self) -> None:
        """Assert that each stream got its next rows, once and in order, with the due times of its seed."""
        for name, feed in self.feeds.items():
            rows = self.rows[name]
            times = self.times[name].upcoming(math.inf, len(rows))
            expected = EPOCH + (times * 1e6).astype(np.int64)
            assert [due for due, _ in rows] == expected.tolist()
            assert [n for _, n in rows] == [n % FILE_ROWS for n in range(len(rows))]
            assert self.sequences[name] == list(range(1, len(self.sequences[name]) + 1))
            assert (np.array(self.left[name]) >= times - 1e-9).all()
            # Rows that were planned and not sent are not taken.
            window = feed.windows[name]
            assert feed.source.taken == window.rows_added
            waiting = list(window._frames)[window.frames_in_flight :]
            assert window.rows_added - len(rows) == sum(frame.rows for frame in waiting)
            assert window.first_source_row in (window.rows_acked, None)

    @property
    def frames(self) -> int:
        return sum(feed.windows[name].frames_sent for name, feed in self.feeds.items())

    def together(self) -> float:
        """Return how many frames recent messages had."""
        return float(np.mean([len(frames) for frames in self.messages[-20:]]))


def test_rows_of_many_streams_are_sent_in_one_message_per_tick(numbers: Path) -> None:
    world = World(numbers)
    for number in range(27):
        world.add(f"s{number}", "1500")
    world.run(0.4)
    world.check()
    assert world.together() > 15
    assert len(world.messages) == pytest.approx(400, abs=10)
    lags = world.lags
    # On time, a row waits for the end of its tick and no longer.
    assert lags.worst() == pytest.approx(LINGER, rel=0.2)
    assert lags.quantile(0.5) == pytest.approx(LINGER / 2, rel=0.2)
    for name in world.feeds:
        assert len(world.rows[name]) == pytest.approx(600, abs=120)
    assert sum(len(each) for each in world.sequences.values()) == world.frames


def test_the_same_rows_are_sent_without_multi_stream_messages(numbers: Path) -> None:
    together, apart = World(numbers), World(numbers, multi_stream=False)
    for world in (together, apart):
        for number in range(5):
            world.add(f"s{number}", "1000@0.1s,3000", limit=400)
        world.run(1.0)
        world.check()
        assert not world.dispatcher
    assert together.rows == apart.rows
    assert max(len(frames) for frames in together.messages) == 5
    assert max(len(frames) for frames in apart.messages) == 1


@pytest.mark.parametrize("seed", [*range(7), 20])
def test_each_row_is_sent_once_under_random_changes(numbers: Path, seed: int) -> None:
    """Streams of all rates join and end, the feeder is late, acks are late, and credit is short."""
    random = np.random.default_rng(seed)
    world = World(numbers, frame_rows=int(random.choice([20, 4096])))
    rates = ["1500", "300", "40", "5000", "800@0.05s,4000@0.05s,100", "2000@0.15s"]
    late, short = random.choice([0.0, 0.02, 0.3], 2)
    # With few acks, streams wait because too many of their frames are in flight.
    ack_chance, low = (0.3, 300) if seed % 2 else (0.008, CREDIT)
    for step in range(400):
        if step == 0 or (random.random() < 0.03 and len(world.feeds) < 12):
            for _ in range(int(random.integers(1, 6))):
                limit = int(random.integers(1, 2000)) if random.random() < 0.4 else None
                credit = int(random.choice([low, 10 * low, CREDIT]))
                world.add(f"s{len(world.feeds)}", str(random.choice(rates)), credit, limit=limit)
        delay = float(random.exponential(0.02)) if random.random() < late else 0.0
        if not world.step(delay, spare=float(random.choice([0.0, 1.0]))) or random.random() < ack_chance:
            for name in world.feeds:
                if random.random() > short:
                    world.ack(name, credit=int(random.choice([low, CREDIT])))
    world.check()
    for _ in range(400):
        world.ack()
        if not world.step() or world.now > 60:
            break
    world.check()
    for name, feed in world.feeds.items():
        limit = feed.source._limit
        if feed.over and str(feed.rate) != "2000@0.15s":
            assert len(world.rows[name]) == limit


def test_a_stream_without_credit_leaves_its_group_and_rejoins_it(numbers: Path) -> None:
    world = World(numbers)
    for number in range(8):
        world.add(f"s{number}", "1500")
    world.run(0.1)
    others = [name for name in world.feeds if name != "s3"]
    world.ack("s3", credit=0)
    while world.now < 0.2 and world.step():
        world.ack(*others)
    assert world.dispatcher.waits("s3")
    assert max(world.left["s3"]) < 0.11
    assert min(world.left[name][-1] for name in others) > 0.19
    assert world.together() > 4
    world.ack("s3")
    assert not world.dispatcher.waits("s3")
    world.step()
    # Its rows that waited are sent at once, in a frame of their own.
    assert world.left["s3"][-1] - max(left for left in world.left["s3"] if left < 0.19) > 0.09
    world.run(0.4)
    world.check()
    assert any(len(frames) > 1 and "s3" in {frame[0] for frame in frames} for frames in world.messages[-20:])


def test_rows_that_wait_for_acks_wait_in_the_group(numbers: Path) -> None:
    """Acks of one stream are late, so that too many of its frames are in flight."""
    world = World(numbers)
    for number in range(8):
        world.add(f"s{number}", "1500")
    world.run(0.1)
    others = [name for name in world.feeds if name != "s3"]
    while world.now < 0.28 and world.step():
        world.ack(*others)
    assert not world.dispatcher.waits("s3")
    assert max(world.left["s3"]) < 0.2
    world.ack("s3")
    world.step()
    # Rows of several plans are sent together, and with the rows of others.
    assert len(world.messages[-1]) > 4
    assert {stream: count for stream, _, count in world.messages[-1]}["s3"] > 100
    world.check()


def test_a_delayed_feeder_sends_large_frames_and_continues_in_groups(numbers: Path) -> None:
    world = World(numbers)
    for number in range(10):
        world.add(f"s{number}", "1500")
    world.run(0.1)
    frames = world.frames
    world.step(late=1.0)
    # A second's rows of a stream are one frame, except for rows that were planned already.
    assert world.frames - frames <= 30
    world.check()
    world.run(1.3)
    world.check()
    assert world.together() > 6


def test_after_a_short_delay_several_ticks_become_one_message(numbers: Path) -> None:
    world = World(numbers)
    for number in range(10):
        world.add(f"s{number}", "1500")
    world.run(0.02)
    for _ in range(60):
        before = len(world.messages)
        world.step(late=0.005)
        world.ack()
        assert len(world.messages) - before <= 2
    world.check()


def test_recorded_streams_are_sent_together_with_others(tmp_path: Path) -> None:
    """They repeat every 240 ms; some of their rows are due together."""
    path = tmp_path / "recorded.csv"
    lines = [f"{n // 5 * 0.004:.3f},{n}\n" for n in range(FILE_ROWS)]
    path.write_text("after,n\n" + "".join(lines))
    world = World(path)
    for number in range(6):
        world.add(f"s{number}", "recorded:after", period=0.24, limit=700 if number == 2 else None)
    world.run(1.0)
    world.check()
    assert max(len(frames) for frames in world.messages) == 6
    assert len(world.rows["s0"]) == pytest.approx(1250, abs=10)
    assert len(world.rows["s2"]) == 700
    assert world.feeds["s2"].over


def test_a_fast_stream_shortens_the_send_plans(numbers: Path) -> None:
    """So short that there is no time to make the next one in steps."""
    world = World(numbers)
    world.add("fast", "100000")
    for number in range(44):
        world.add(f"s{number}", "500")
    while world.now < 0.2:
        world.step(spare=0.0)
        world.ack()
    world.check()
    assert world.together() > 15
    assert len(world.messages) == pytest.approx(200, abs=40)


def test_streams_with_other_fields_are_sent_at_the_same_ticks(numbers: Path) -> None:
    world = World(numbers)
    for number in range(6):
        world.add(f"s{number}", "1500")
    world.run(0.0104)
    for number in range(6):
        world.add(f"other{number}", "1500", fields=[FIELDS[0], {**FIELDS[1], "nullable": True}])
    world.run(0.3)
    world.check()
    moments = {left for name in world.feeds for left in world.left[name] if left > 0.1}
    assert len(moments) == pytest.approx(200, abs=10)
    for frames in world.messages[-100:]:
        assert len({name.startswith("other") for name, _, _ in frames}) == 1


def test_the_end_of_a_slow_stream_is_detected_at_once(numbers: Path) -> None:
    world = World(numbers)
    for number in range(5):
        world.add(f"s{number}", "2000")
    slow = world.add("slow", "30", limit=2)
    while slow.rows_added < 2:
        world.step()
        world.ack()
    ended = world.now
    world.run(ended + 0.15)
    assert world.feeds["slow"].over
    world.check()
    assert world.rows["slow"][-1][1] == 1


def test_few_rows_are_sent_as_soon_as_they_are_due(numbers: Path) -> None:
    world = World(numbers)
    for number in range(5):
        world.add(f"s{number}", "20")
    world.run(3.0)
    world.check()
    assert world.lags.quantile(0.8) == pytest.approx(1e-6)


def test_without_linger_each_row_is_sent_when_it_is_due(numbers: Path) -> None:
    world = World(numbers, linger=0.0)
    for number in range(5):
        world.add(f"s{number}", "2000")
    world.run(0.05)
    world.check()
    assert world.lags.worst() == 0.0


def test_peeking_at_rows_does_not_take_them(numbers: Path) -> None:
    spec = StreamSpec.model_validate({"name": "s", "fields": FIELDS[1:]})
    source = FileSource(numbers, spec, loop=True, limit=2 * FILE_ROWS + 10)
    due = np.zeros(FILE_ROWS, dtype=np.int64)
    far = source.peek(due, ahead=FILE_ROWS - 1)
    assert far is not None
    assert far.column("n").to_pylist() == [FILE_ROWS - 1, *range(FILE_ROWS - 1)]
    assert source.taken == 0
    near = source.peek(due[:5])
    assert near is not None
    source.advance(4)
    again = source.take(due[:2])
    assert again is not None
    assert again.column("n").to_pylist() == [4, 5]
    # No more can be peeked at than taken, and the position is that of the rows taken.
    last = source.peek(due, ahead=2 * FILE_ROWS - 6)
    assert last is not None
    assert last.column("n").to_pylist() == list(range(10))
    assert source.peek(due, ahead=2 * FILE_ROWS + 4) is None
    assert tuple(source.position_at(source.taken)) == (6, 0)
