"""Sharing and classes: which queries share, and the class, priority and weight of the shared pipeline."""

from __future__ import annotations

import pytest
from tests.conftest import MakeStream
from tests.support.engine.shared_pipelines import Bench, hot, readings_of, shares

from mavstream_protocol.scheduling import Sharing
from mavstream_server.testing import ManualClock, ScriptedStream


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return readings_of(stream)


@pytest.fixture
def bench(readings: ScriptedStream, clock: ManualClock) -> Bench:
    return Bench(readings, clock)


def test_sharing_can_be_switched_off(readings: ScriptedStream, clock: ManualClock) -> None:
    bench = Bench(readings, clock, sharing=Sharing.OFF)
    bench.start("a", hot())
    bench.start("b", hot())
    bench.feed(*range(20))
    assert not bench.pipelines


def test_classes_share_only_if_configured(readings: ScriptedStream, clock: ManualClock) -> None:
    bench = Bench(readings, clock)
    runs = [bench.start("a", hot()), bench.start("b", hot(), class_name="high")]
    bench.feed(*range(20))
    assert not bench.pipelines
    bench.engine.changes.reclass("b", "default")
    bench.settle()
    assert shares(*runs)
    bench.engine.changes.reclass("b", "high")
    bench.settle()
    assert not bench.pipelines
    bench.feed(20)
    assert [len(run.answers()) for run in runs] == [11, 11]


def test_a_pipeline_shared_by_classes_is_charged_to_the_highest(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    bench = Bench(readings, clock, policy="cqc", sharing=Sharing.ALL)
    bench.engine.set_class("high", 6)
    runs = [bench.start("a", hot()), bench.start("b", hot(), class_name="high"), bench.start("c", hot())]
    bench.feed(*range(20))
    assert shares(*runs)
    assert bench.pipeline().class_name == "high"
    bench.engine.set_class("default", 9)
    assert bench.pipeline().class_name == "default"
    bench.engine.set_class("default", 1)
    bench.engine.stop("b")
    bench.feed(20)
    assert bench.pipeline().class_name == "default"
    assert [len(run.answers()) for run in runs] == [11, 10, 11]


def test_a_shared_pipeline_has_the_largest_weight_of_its_members(bench: Bench) -> None:
    runs = [bench.start(id_, hot()) for id_ in "abc"]
    bench.engine.changes.weigh("a", 3)
    bench.feed(1, 10)
    assert shares(*runs)
    assert bench.pipeline().weight == 3
    bench.engine.changes.weigh("b", 5)
    assert bench.pipeline().weight == 5
    bench.engine.stop("b")
    bench.feed(11)
    assert bench.pipeline().weight == 3
