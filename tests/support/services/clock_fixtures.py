"""Fixtures of a query service whose clock is advanced by hand; test modules name this as a plugin."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.support.services.query_service import served
from tests.support.services.query_times import Run

from mavstream_server.testing import ManualClock


@pytest.fixture
def wall_clock() -> ManualClock:
    """A manual clock that begins at the system time, which the engine uses."""
    return ManualClock(time.time_ns())


@pytest.fixture
def run(tmp_path: Path, wall_clock: ManualClock) -> Run:
    """Run a test with a service, whose clock is the test's."""
    return lambda test: served(test, tmp_path, clock=wall_clock)
