"""Fixtures for all tests: a clock that is advanced by hand, and scripted streams in a temporary directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mavstream_server.testing import ManualClock, ScriptedStream

MakeStream = Callable[..., ScriptedStream]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a module in one process: they share servers, which take long to start."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stream(tmp_path: Path, clock: ManualClock) -> Iterator[MakeStream]:
    """Return a maker of scripted streams: `stream("readings", "ts timestamp, home int", event_time="ts")`."""
    made: list[ScriptedStream] = []

    def make(name: str, fields: str, **options: Any) -> ScriptedStream:
        made.append(ScriptedStream(tmp_path, name, fields, clock, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
