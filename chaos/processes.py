"""How the processes of a run are started: forked from one that has loaded the server and the SDK already.

Loading them takes most of the time of a start, and a run starts the server hundreds of times.
"""

from __future__ import annotations

import os
from multiprocessing import get_context

# The semaphores of killed servers are left to Python's resource tracker, which is what it is for.
os.environ["PYTHONWARNINGS"] = "ignore::UserWarning:multiprocessing.resource_tracker"
PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["chaos.producer", "chaos.server", "chaos.subscribers", "mavstream_server.api.serve"]
)
