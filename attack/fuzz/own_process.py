"""Runs a function in a process of its own, so that a load generator does not slow down who watches."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Job = TypeVar("Job")
Report = TypeVar("Report")


def in_own_process(work: Callable[[Job], Report], job: Job, timeout: float) -> Report:
    """Return what a function returns; raises TimeoutError, and what it raises."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, job).result(timeout)
