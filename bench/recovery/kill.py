"""The engine is killed under load, and the server is stopped and started again."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.load.server_process import ServerProcess
from bench.recovery.loaded import LoadedServer
from bench.recovery.workload import IMPORTANT, Load
from mavstream_server.engine.checkpoints.store import CheckpointStore
from mavstream_server.log import LogReader

_POLL = 0.01
_PATIENCE = 120.0


def kill_and_restart(loads: Sequence[Load], interval: str, kill_at: float) -> dict[str, Any]:
    """Kill the engine so many seconds after the begin; later stop the server and start it again."""
    flags = ("--checkpoint-interval", interval)
    with tempfile.TemporaryDirectory() as folder:
        running = ServerProcess(Path(folder), *flags)
        try:
            loaded = LoadedServer(running, loads)
            with loaded.fed():
                loaded.sleep_until(kill_at)
                state_mb, backlog_mb = loaded.state_mb(), loaded.engine()["memory_bytes"]["backlog"] / 1e6
                killed, rows = _kill(loaded)
                engine_s = _engine_again(loaded, killed)
            metrics = _answering_again(loaded, killed)
            wrong, trouble = loaded.wrong(), running.trouble()
        finally:
            begun = time.monotonic()
            running.close()
        stopped_s = time.monotonic() - begun
        left = _left_to_replay(Path(folder), loaded)
        again = ServerProcess(Path(folder), *flags)
        try:
            running_s = _all_running(again)
        finally:
            again.close()
    return {
        "state_mb": round(state_mb),
        "backlog_mb": round(backlog_mb, 1),
        "engine_s": round(engine_s, 2),
        **metrics,
        "rows_replayed": rows,
        "rows_replayed_per_s": round(rows / max(metrics["all_s"] - engine_s, 1e-3)),
        "stop_s": round(stopped_s, 2),
        "left_to_replay": left,
        "ready_s": round(again.ready_s, 2),
        "all_running_s": round(again.ready_s + running_s, 2),
        "wrong": wrong,
        "log": [line for line in trouble if "engine process" not in line][:5],
    }


def _kill(loaded: LoadedServer) -> tuple[int, int]:
    """Kill the engine; returns when (ns since the epoch), and the rows that its queries read again."""
    pid = loaded.running.engine_pid
    assert pid is not None, "the server has no engine"
    os.kill(pid, signal.SIGKILL)
    return time.time_ns(), _left_to_replay(loaded.running.data, loaded)


def _left_to_replay(data: Path, loaded: LoadedServer) -> int:
    """Return how many rows queries read again from their last checkpoints, counted per source."""
    store, rows = CheckpointStore(data / "checkpoints"), 0
    for load, ids in zip(loaded.loads, loaded.ids, strict=True):
        reader = LogReader(data / "streams" / load.stream)
        for query, id_ in zip(load.queries, ids, strict=True):
            sources = sum(node["op"] == "source" for node in query.nodes.values())
            stored = store.stored(id_)
            position = stored[0].header.positions[load.stream] if stored else reader.begin
            rows += sources * (reader.end - position)
        reader.close()
    return rows


def _engine_again(loaded: LoadedServer, killed: int) -> float:
    """Wait for the next engine; returns how many seconds after the kill it took commands."""
    until = time.monotonic() + _PATIENCE
    while not loaded.running.http.get("/v1/stats").json()["engine_restarts"]:
        if time.monotonic() > until:
            raise TimeoutError(f"no other engine was started within {_PATIENCE:g} s")
        time.sleep(_POLL)
    return time.time() - killed / 1e9


def _answering_again(loaded: LoadedServer, killed: int) -> dict[str, Any]:
    """Return when queries answered rows that were due after the kill, in seconds after it."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for load, ids in zip(loaded.loads, loaded.ids, strict=True):
        for query, id_ in zip(load.queries, ids, strict=True):
            received = loaded.received[id_]
            later = received.times[load.due_ns(query, received, loaded.begin) > killed]
            times[load.class_name == IMPORTANT].append(
                (later.min() - killed) / 1e9 if len(later) else float("inf")
            )
    return {
        "important_s": round(max(times[True]), 2),
        "half_s": round(float(np.median(times[False])), 2),
        "all_s": round(max(times[True] + times[False]), 2),
    }


def _all_running(server: ServerProcess) -> float:
    """Return the seconds until all queries run."""
    begin = time.monotonic()
    while time.monotonic() - begin < _PATIENCE:
        listed = server.http.get("/v1/queries", params={"limit": 500}).json()
        if all(query["state"] == "running" for query in listed["items"]):
            break
        time.sleep(_POLL)
    return time.monotonic() - begin
