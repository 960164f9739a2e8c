"""Feeder benchmark: timing accuracy with many streams, and throughput at full speed.

27 streams at 1,500 tuples/s each are sent to a real server, whose API process has a core for itself, as with
a feeder on another machine. Its arrival stamps are read from the stream logs afterwards. For each stream the
gaps between 10,000 arrivals are tested against the exponential distribution (`bench.data.kolmogorov`):

- `ks_due_p`: the due times themselves, which the rows carry as event times. Quality of the schedule.
- `ks_p`: the stamps; rows of one message are spread over the time since the one before, over 1 ms at most.
- `ks_p_whole`: the same without the limit of 1 ms. It tolerates coalescing of any length, but nothing else.
- `ks_bare_p`: as `ks_p`, of the same schedule through a bare socket (`bench.data.bare_feed`), right after it.
  The accuracy that the machine allows.

`coalescing_ms` is how long rows were held together: the time between two messages.
`passed` counts the streams above 0.01. Of 27 tests of a perfect source the least p-value is below 0.01 in a
quarter of all runs.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from bench.data.bare_feed import bare_arrivals
from bench.data.kolmogorov import Times, exponential_p, spread
from bench.load.server_process import ServerProcess
from bench.outcome import Outcome, text_table
from bench.workload.queries import Q1
from bench.workload.readings import EVENT_TIME, FIELDS, arrow_readings
from mavstream_feeder import Address, Feeder, FileSource, Options, parse_rate
from mavstream_feeder.pacing.arrivals import PoissonArrivals
from mavstream_feeder.pacing.rates import constant
from mavstream_feeder.sending.feeds import LINGER
from mavstream_protocol import StreamSpec
from mavstream_server.log import LogReader, gather, gather_arrivals

STREAMS = 27
RATE = 1500
SEED = 11
_TESTED = 10_000
_SIGNIFICANT = 0.01
_COALESCING = 0.001
_ANY = 3600.0
_FILE_ROWS = 100_000
_PATIENCE = 60.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="how long to feed at a rate (default: 10)"
    )
    parser.add_argument("--streams", type=int, default=STREAMS, help=f"how many (default: {STREAMS})")
    parser.add_argument("--rate", type=int, default=RATE, help=f"tuples/s of each (default: {RATE})")
    parser.add_argument(
        "--rows", type=int, default=3_000_000, help="rows to feed flat out (default: 3 million)"
    )


def run(options: argparse.Namespace) -> Outcome:
    """Measure both; row counts of the logs and answers of the server are checked before anything is
    reported.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        batch = arrow_readings(_FILE_ROWS, seed=1)
        file = path / "readings.parquet"
        pa.parquet.write_table(pa.Table.from_batches([batch]), file)
        keeping, kept = _keeps_time(path / "rated", file, options)
        most, all_there = _flat_out(path / "flat_out", file, batch, options.rows)
    correct = kept and all_there
    metrics: dict[str, Any] = {**keeping, "max_tuples_per_s": round(most), "correct": correct}
    return Outcome(metrics, _text(metrics), correct)


def _keeps_time(data: Path, file: Path, options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    data.mkdir()
    names = [f"s{number}" for number in range(options.streams)]
    server = ServerProcess(data)
    try:
        feeder = Feeder(Address(server.url), Options(seed=SEED))
        for name in names:
            spec = _stream(server, name)
            feeder.add(name, FileSource(file, spec, loop=True, stamp=True), constant(options.rate))
        before = server.cpu_s(), time.process_time()
        with server.apart():
            report = asyncio.run(feeder.run(options.seconds))
        used = server.cpu_s() - before[0], time.process_time() - before[1]
    finally:
        server.close()
    stamps, dues = {}, {}
    for name in names:
        stamps[name], dues[name] = _log_times(data, name)
    whole = all(len(stamps[name]) == report.streams[name].acked for name in names)
    on_schedule = all(_as_scheduled(name, dues[name], options.rate) for name in names)
    moments = _moments(list(stamps.values()))
    exact = [exponential_p(np.diff(dues[name])[:_TESTED], options.rate) for name in names]
    bare = bare_arrivals([_scheduled(name, options.rate, len(dues[name])) for name in names], LINGER)
    metrics = {
        "tuples_per_s": round(report.acked / report.seconds),
        "lag_p50_ms": report.lag_p50_ms,
        "lag_p99_ms": report.lag_p99_ms,
        "lag_max_ms": report.lag_max_ms,
        "ks_due_p": _p_values(exact),
        "ks_p": _p_values(_gaps_p(list(stamps.values()), options.rate, _COALESCING)),
        "ks_p_whole": _p_values(_gaps_p(list(stamps.values()), options.rate, _ANY)),
        "ks_bare_p": _p_values(_gaps_p(bare, options.rate, _COALESCING)),
        "coalescing_ms": _between(moments),
        "coalescing_bare_ms": _between(_moments(bare)),
        "frames_per_s": round(report.frames / report.seconds),
        "server_us_per_frame": round(used[0] / report.frames * 1e6),
        "feeder_us_per_frame": round(used[1] / report.frames * 1e6),
    }
    return metrics, whole and on_schedule and report.sent == report.acked


def _stream(server: ServerProcess, name: str) -> StreamSpec:
    spec = {"name": name, "fields": FIELDS, "event_time": EVENT_TIME}
    server.post("/v1/streams", spec)
    return StreamSpec.model_validate(spec)


def _log_times(data: Path, name: str) -> tuple[Times, Times]:
    """Return arrival stamps and due times of all rows in a stream's log, in seconds."""
    cursor = LogReader(data / "streams" / name).cursor(0)
    stamps, dues = [np.empty(0)], [np.empty(0)]
    while spans := [span for span in cursor.take(1 << 16) if span[2] > span[1]]:
        stamps.append(gather_arrivals(spans) / 1e9)
        dues.append(gather(spans, [EVENT_TIME])[EVENT_TIME].values / 1e6)
    return np.concatenate(stamps), np.concatenate(dues)


def _as_scheduled(name: str, dues: Times, rate: int) -> bool:
    """Whether rows carry the due times of the schedule, all of them and in order; within a microsecond."""
    if not len(dues):
        return False
    scheduled = _scheduled(name, rate, len(dues))
    return bool(np.abs(np.diff(dues) - np.diff(scheduled)).max(initial=0.0) < 3e-6)


def _scheduled(name: str, rate: int, rows: int) -> Times:
    return PoissonArrivals(constant(rate), 0.0, SEED, name).take(np.inf, rows)


def _gaps_p(stamps: Sequence[Times], rate: int, longest: float) -> list[float]:
    """Return the p-value of each stream's gaps."""
    moments = _moments(stamps)
    return [
        exponential_p(np.diff(spread(each, moments, longest))[:_TESTED], rate) if len(each) > 1 else 0.0
        for each in stamps
    ]


def _moments(stamps: Sequence[Times]) -> Times:
    """Return the times at which rows of any stream arrived."""
    return np.unique(np.concatenate(stamps))


def _between(moments: Times) -> dict[str, float]:
    gaps = np.diff(moments) * 1000
    return {f"p{p}": round(float(np.percentile(gaps, p)), 3) for p in (50, 99)}


def _p_values(values: Sequence[float]) -> dict[str, float]:
    """Return the least and the median p-value, and how many streams pass."""
    passed = sum(value > _SIGNIFICANT for value in values)
    return {"least": round(min(values), 4), "median": round(float(np.median(values)), 4), "passed": passed}


def _flat_out(data: Path, file: Path, batch: pa.RecordBatch, rows: int) -> tuple[float, bool]:
    """Feed one stream into a query at full speed; the time ends when all rows are acked and answered."""
    data.mkdir()
    server = ServerProcess(data)
    try:
        spec = _stream(server, "readings")
        nodes = {**Q1.nodes, "in": {"op": "source", "stream": "readings"}}
        plan = {"name": "q1", "plan": {"root": "answer", "nodes": nodes}}
        query = server.post("/v1/queries", plan)["id"]
        feeder = Feeder(Address(server.url))
        feeder.add("readings", FileSource(file, spec, loop=True, limit=rows), parse_rate("max"))
        begin = time.perf_counter()
        report = asyncio.run(feeder.run())
        expected = _hot(batch, rows)
        while (found := _answered(server, query)) < expected and time.perf_counter() - begin < _PATIENCE:
            time.sleep(0.01)
        elapsed = time.perf_counter() - begin
    finally:
        server.close()
    return rows / elapsed, found == expected and report.acked == rows


def _hot(batch: pa.RecordBatch, rows: int) -> int:
    """Return how many rows Q1 answers if the file is repeated for a number of rows."""
    hot = (batch["temperature"].to_numpy() > 30) & (batch["humidity"].to_numpy() < 30)
    rounds, rest = divmod(rows, len(hot))
    return int(rounds * hot.sum() + hot[:rest].sum())


def _answered(server: ServerProcess, query: object) -> int:
    return int(server.http.get(f"/v1/queries/{query}").json()["results"])


def _text(metrics: dict[str, Any]) -> str:
    rows = [[name.replace("_", " "), _shown(value)] for name, value in metrics.items()]
    return text_table(["feeder", "metric"], rows)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
