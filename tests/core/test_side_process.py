"""A side process: results, errors, and its death during a job."""

from __future__ import annotations

import asyncio
import os

import pytest

from mavstream_protocol.errors import InvalidPlan, ProblemItem
from mavstream_protocol.plans.budget import check_bytes
from mavstream_server.core.side_process import SideProcess, SideProcessDied


def test_jobs_run_in_one_other_process_and_errors_come_back_whole() -> None:
    async def test() -> None:
        side = SideProcess(niceness=0)
        try:
            assert await side.run(os.getpid) == await side.run(os.getpid) != os.getpid()
            with pytest.raises(InvalidPlan) as caught:
                await side.run(check_bytes, 1 << 30)
            assert isinstance(caught.value.items[0], ProblemItem)
            assert side.waiting == 0
        finally:
            await side.stop()

    asyncio.run(test())


def test_a_process_that_dies_is_replaced() -> None:
    async def test() -> None:
        side = SideProcess(niceness=0)
        try:
            with pytest.raises(SideProcessDied):
                await side.run(os._exit, 1)
            assert await side.run(len, "abc") == 3
        finally:
            await side.stop()

    asyncio.run(test())
