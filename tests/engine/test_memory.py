"""Memory stays bounded with ever-new strings, lagging queries and endless windows."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pytest
from tests.conftest import MakeStream
from tests.support.scale import scaled

from mavstream_server.columns.column import Column
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.engine.sinks import CountingSink
from mavstream_server.log import LogOptions, Retention
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

IN = {"in": {"op": "source", "stream": "words"}}
SELECT = {**IN, "out": {"op": "select", "input": "in", "where": "word LIKE '%7'"}}


def counted(compute: str, by: list[str]) -> dict[str, Any]:
    window = {"kind": "tumbling", "size": "10ms"}
    return {
        **IN,
        "out": {"op": "aggregate", "input": "in", "by": by, "window": window, "compute": {"n": compute}},
    }


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def live_texts() -> int:
    gc.collect()
    return sum(len(thing) for thing in gc.get_objects() if isinstance(thing, Dictionary))


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads the resident size from /proc")
@pytest.mark.parametrize(
    "nodes",
    [SELECT, counted("count(*)", ["word"]), counted("count(distinct word)", []), counted("max(word)", [])],
    ids=["select", "count by", "count distinct", "max"],
)
def test_ever_new_strings_do_not_grow_memory(
    stream: MakeStream, clock: ManualClock, nodes: dict[str, Any]
) -> None:
    """Each round writes 20,000 new strings; retention removes the old ones."""
    rounds, size = scaled(25, 500), 20_000
    words = stream(
        "words", "ts timestamp, word string", event_time="ts", options=LogOptions(segment_texts=20_000)
    )
    run = run_plan(nodes, "out", [words])
    run.sink = CountingSink()
    run.query.output.sink = run.sink
    texts, sizes = [], []
    for number in range(rounds):
        first = number * size
        dictionary = Dictionary(f"word {first + index}" for index in range(size))
        columns = {
            "ts": Column(np.arange(first, first + size)),
            "word": Column(np.arange(size, dtype=np.int32), None, dictionary),
        }
        words.writer.append(columns, size, clock.now())
        del columns, dictionary
        run.engine.run()
        Retention(max_bytes=4 << 20).apply(words.writer, words.reader.end, clock.now())
        words.reader.release_removed()
        if number % 10 == 9:
            texts.append(live_texts())
            sizes.append(resident())
    assert run.sink.offset > 0
    assert run.query.memory.resident < 40 << 20
    assert max(texts) < 12 * size
    assert sizes[-1] - sizes[0] < 60 << 20


def test_a_lagging_query_does_not_increase_the_memory_of_another(stream: MakeStream) -> None:
    """One query never runs; the other one on the same stream holds no more memory because of it."""
    words = stream("words", "ts timestamp, word string", event_time="ts")
    quick = run_plan(SELECT, "out", [words], id_="quick")
    lagging = run_plan(SELECT, "out", [words], engine=quick.engine, id_="lagging", queue_limit=1)
    most: dict[str, int] = {"quick": 0, "lagging": 0}
    for number in range(50):
        words.rows(*[(number * 100 + index, f"{index}") for index in range(100)])
        for _ in range(8):
            quick.engine.step()
            for run in (quick, lagging):
                most[run.query.id] = max(most[run.query.id], run.query.memory.resident)
    assert len(quick.rows()) == len(lagging.rows()) == 500
    assert most["quick"] < 20_000
    assert most["lagging"] < 20_000


def test_keys_of_closed_windows_are_removed(stream: MakeStream) -> None:
    words = stream("words", "ts timestamp, word string", event_time="ts")
    run = run_plan(counted("count(*)", ["word"]), "out", [words])
    sizes = []
    for number in range(40):
        words.rows(*[(number * 10_000 + index, f"{number} {index}") for index in range(2000)])
        run.engine.run()
        sizes.append(run.query.memory.state)
    assert max(sizes[20:]) <= 1.5 * max(sizes[5:20])


def state_after(run: PlanRun, stream: ScriptedStream, rounds: int) -> list[int]:
    sizes = []
    for number in range(rounds):
        stream.rows(*[(number * 100_000 + index * 1000, index % 7) for index in range(100)])
        run.engine.run()
        sizes.append(run.query.memory.state)
    return sizes


@pytest.mark.parametrize("compute", ["count(*)", "median(v)", "count(distinct v)", "last(v)", "stddev(v)"])
def test_overlapping_windows_hold_only_the_panes_that_they_need(stream: MakeStream, compute: str) -> None:
    numbers = stream("words", "ts timestamp, v int", event_time="ts")
    window = {"kind": "hopping", "size": "1s", "hop": "10ms"}
    nodes = {**IN, "out": {"op": "aggregate", "input": "in", "window": window, "compute": {"n": compute}}}
    sizes = state_after(run_plan(nodes, "out", [numbers]), numbers, 60)
    assert max(sizes[40:]) <= 1.5 * max(sizes[20:40])
