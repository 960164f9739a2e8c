"""A run: a server, its producer and its subscribers, rounds of faults, and the comparison at the end."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from chaos.changes import Changes
from chaos.checks import ReadBack, check_query, check_streams
from chaos.expected import Expected
from chaos.faults import strike
from chaos.options import ChaosOptions
from chaos.producer import Producing
from chaos.report import ChaosReport
from chaos.schedule import Round, make_schedule
from chaos.server import ChaosServer, ServerGone, wait_for
from chaos.subscribers import Received, Subscribers, read_results
from chaos.workload import CLASSES, FIELDS, STREAMS, TABLE, TABLE_ROWS, ChaosQuery, queries
from mavstream import MavstreamError, stream

_RESULT_BYTES = (256 << 10, 256 << 20)
"""Sizes of result logs: small ones lose old answers to retention, and roll often."""


def run(options: ChaosOptions, tell: Callable[[str], None] = lambda line: None) -> ChaosReport:
    """Run all rounds, and return what was found."""
    report = ChaosReport(options.seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mavstream-chaos-")))
        server = ChaosServer(folder, _RESULT_BYTES[options.seed % 2])
        stack.callback(server.close)
        chosen = queries(options.seed)
        ids = _prepare(server, chosen)
        subscribers = Subscribers(server.url, list(ids.values()))
        stack.callback(subscribers.close)
        producing = Producing(server.url)
        stack.callback(producing.close)
        changes = Changes(server, ids, next(each.name for each in chosen if each.pausable), report)
        try:
            for round_ in make_schedule(options.seed, options.rounds, options.only, options.seconds):
                _run_round(server, changes, round_, report)
                tell(_line(round_))
            report.acked = producing.stop()
            for name in STREAMS:
                server.client.complete(name)
            received = subscribers.finish(options.drain)
            _check(server, chosen, ids, received, changes, report)
        except (ServerGone, MavstreamError, TimeoutError, RuntimeError) as error:
            report.violated(f"round {report.rounds}: {error!r}\n{server.log_tail()}")
    return report


def _prepare(server: ChaosServer, chosen: list[ChaosQuery]) -> dict[str, str]:
    """Create everything; returns the ids of the queries by name."""
    for name, priority in CLASSES.items():
        server.client.put_class(name, priority)
    for name in STREAMS:
        server.client.create_stream(name=name, fields=FIELDS, event_time="ts")
    server.client.put_table(TABLE, TABLE_ROWS, fields="k:int,label:string,cap:int")
    return {
        each.name: server.client.submit(each.flow, name=each.name, class_="usual", from_="earliest").id
        for each in chosen
    }


def _run_round(server: ChaosServer, changes: Changes, round_: Round, report: ChaosReport) -> None:
    changes.begin(round_)
    time.sleep(round_.feed_s)
    strike(server, round_, report)
    changes.end()
    report.rounds += 1


def _check(
    server: ChaosServer,
    chosen: list[ChaosQuery],
    ids: dict[str, str],
    received: dict[str, Received],
    changes: Changes,
    report: ChaosReport,
) -> None:
    expected = Expected(dict.fromkeys(STREAMS, report.acked))
    for query in chosen:
        live, stored = received[ids[query.name]], read_results(server.url, ids[query.name])
        check_query(query, live, stored, expected, changes.pauses, report)
    expected.close()
    check_streams({name: _read_back(server, name) for name in STREAMS}, report)


def _read_back(server: ChaosServer, name: str) -> ReadBack:
    """Count the rows of a stream, and the different ones by a new query whose answers are few."""
    flow = stream(name).window("10s").agg(n="count(distinct n)")
    query = server.client.submit(flow, name=f"read_{name}", class_="urgent", from_="earliest")
    wait_for(lambda: query.info().state.value == "finished", f"stream {name} to be read back")
    stored = read_results(server.url, query.id)
    different = sum(number for _, _, batch in stored.batches for number in batch.column(0).to_pylist())
    return ReadBack(server.client.stream_info(name).position, different)


def _line(round_: Round) -> str:
    what = round_.failpoint or round_.fault or "no fault"
    return f"round {round_.number}: fed {round_.feed_s:.2f} s, {what}, change: {round_.change or 'none'}"
