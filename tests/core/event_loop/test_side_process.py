"""A side process: results, errors, and its death during a job."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from mavstream_protocol.errors import InvalidPlan, ProblemItem
from mavstream_protocol.plans.budget import check_bytes
from mavstream_server.core.event_loop.side_process import SideProcess, SideProcessDied


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


def is_loaded(module: str) -> bool:
    return module in sys.modules


def test_a_process_is_warmed_up_before_its_first_job_and_a_dead_one_is_replaced() -> None:
    async def test() -> None:
        side = SideProcess(niceness=0)
        try:
            await side.warm_up("colorsys")
            assert side.waiting == 0
            pid = await side.run(os.getpid)
            assert await side.run(is_loaded, "colorsys")
            with pytest.raises(SideProcessDied):
                await side.run(os._exit, 1)
            assert not await side.run(is_loaded, "colorsys")
            assert await side.run(os.getpid) != pid
        finally:
            await side.stop()

    asyncio.run(test())


def test_a_process_that_dies_while_it_is_warmed_up_is_replaced_by_the_next_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly_module.py").write_text("import os; os._exit(1)")
    monkeypatch.syspath_prepend(tmp_path)  # the process gets the path of its parent

    async def test() -> None:
        side = SideProcess(niceness=0)
        try:
            await side.warm_up("deadly_module")
            assert await side.run(len, "abc") == 3
        finally:
            await side.stop()

    asyncio.run(test())
