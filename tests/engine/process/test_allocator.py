"""The allocator keeps freed memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import platform, resource, sys
import numpy as np
from mavstream_server.engine.process.allocator import keep_freed_memory

if platform.libc_ver()[0] != "glibc":
    sys.exit("another C library")
keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(25):
    arrays = [np.ones(1 << 17) for _ in range(8)]
    del arrays
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults * resource.getpagesize() >> 20)
"""


def test_the_arrays_of_one_batch_after_the_other_use_the_same_memory() -> None:
    run = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=False)
    if "another C library" in run.stderr:
        pytest.skip(run.stderr.strip())
    assert run.returncode == 0, run.stderr
    # Eight arrays of 1 MB, 25 times: memory that is returned to the system comes back with page faults.
    assert int(run.stdout) < 20
