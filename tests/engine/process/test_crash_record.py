"""The crash record: what it says after the process died, and which queries are blamed for that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from array import array

import pytest
from tests.conftest import MakeStream
from tests.support.engine.shared_pipelines import Bench, hot, readings_of, shares

from mavstream_server.engine.crash_record import CrashRecord, Noted, Reading, note_of, record_file
from mavstream_server.supervisor.crash import Crash, crash_of
from mavstream_server.testing import ManualClock

AT_ROWS = (Reading("readings", 100, 164),)
MS = 1_000_000


class WatchedRecord(CrashRecord):
    """A record that also lists all that was noted in it."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[Noted] = []

    def end(self) -> None:
        noted = self.read()
        assert noted is not None
        self.noted.append(noted)
        super().end()


def test_a_record_says_what_runs_and_nothing_between_two_slices() -> None:
    record = CrashRecord()
    assert record.read() is None
    record.begin(note_of(("a", "b"), ("readings",)), array("q", [100, 164]), 5)
    assert record.read() == Noted(("a", "b"), AT_ROWS)
    record.end()
    assert record.read() is None


def test_a_record_outlives_the_process_that_wrote_it() -> None:
    fd = record_file()
    record = CrashRecord.on(fd)
    code = (
        "import os, signal, sys\n"
        "from array import array\n"
        "from mavstream_server.engine.crash_record import CrashRecord, note_of\n"
        "CrashRecord.on(int(sys.argv[1])).begin(note_of(['q'], ['s']), array('q', [3, 9]), 7)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", code, str(fd)], pass_fds=(fd,), check=False)
    os.close(fd)
    assert died.returncode == -signal.SIGKILL
    assert record.read() == Noted(("q",), (Reading("s", 3, 9),))


def test_the_rows_that_a_query_is_at_are_noted_in_each_slice(stream: MakeStream, clock: ManualClock) -> None:
    record = WatchedRecord()
    bench = Bench(readings_of(stream), clock, record=record)
    bench.start("q", hot())
    bench.readings.rows(*[(value, value) for value in range(20)])
    bench.engine.run()
    assert {noted.queries for noted in record.noted} == {("q",)}
    trains = {reading[1:] for noted in record.noted for reading in noted.readings}
    assert trains == {(0, 8), (8, 16), (16, 20)}


def test_all_members_of_a_shared_pipeline_are_noted(stream: MakeStream, clock: ManualClock) -> None:
    record = WatchedRecord()
    bench = Bench(readings_of(stream), clock, record=record)
    runs = [bench.start(name, hot()) for name in ("a", "b")]
    bench.feed(1, 10)
    assert shares(*runs)
    record.noted.clear()
    bench.feed(11, 12)
    assert ("a", "b") in {noted.queries for noted in record.noted}
    assert {noted.readings for noted in record.noted} == {(Reading("readings", 2, 4),)}


def test_a_query_that_may_not_share_runs_apart(stream: MakeStream, clock: ManualClock) -> None:
    bench = Bench(readings_of(stream), clock)
    apart = bench.start("apart", hot(), shares=False)
    others = [bench.start(name, hot()) for name in ("a", "b")]
    bench.feed(1, 10)
    assert shares(*others)
    bench.engine.changes.reclass("apart", "urgent")
    bench.feed(11)
    assert not shares(apart)
    assert len(apart.answers()) == len(others[0].answers())


@pytest.mark.parametrize(
    ("code", "hung", "out_of_memory", "blamed"),
    [
        (-signal.SIGSEGV, False, False, True),
        (-signal.SIGABRT, False, False, True),
        (3, False, False, True),
        (-signal.SIGKILL, False, False, False),
        (-signal.SIGTERM, False, False, False),
        (-signal.SIGKILL, False, True, True),
        (-signal.SIGKILL, True, False, True),
    ],
)
def test_the_query_that_ran_is_blamed_unless_somebody_killed_the_process(
    code: int, hung: bool, out_of_memory: bool, blamed: bool
) -> None:
    crash = crash_of(Noted(("q",), AT_ROWS), code, hung=hung, out_of_memory=out_of_memory)
    assert (crash.queries, crash.readings) == ((("q",), AT_ROWS) if blamed else ((), ()))


def test_nobody_is_blamed_if_nothing_ran() -> None:
    crash = crash_of(None, -signal.SIGSEGV, hung=False, out_of_memory=False)
    assert crash == Crash("was killed by SIGSEGV")
