"""A run: a server, its producers and its subscribers, rounds of faults, and the comparison at the end."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from chaos.chains import chains
from chaos.changes import Changes
from chaos.checks import AnswerChecks, History, ReadBack, check_streams
from chaos.expected import Expected
from chaos.faults import Faults
from chaos.options import ChaosOptions
from chaos.producer import Producers
from chaos.report import ChaosReport
from chaos.schedule import Round, make_schedule, variant
from chaos.server import ChaosServer, ServerGone, wait_for
from chaos.subscribers import Received, Subscribers, read_results
from chaos.workload import (
    CLASSES,
    FIELDS,
    LATENESS,
    OPTIMIZER,
    STREAMS,
    TABLE,
    Acked,
    ChaosQuery,
    Check,
    queries,
    table_rows,
)
from mavstream import MavstreamError, stream


def run(options: ChaosOptions, tell: Callable[[str], None] = lambda line: None) -> ChaosReport:
    """Run all rounds, and return what was found."""
    report = ChaosReport(options.seed)
    with ExitStack() as stack:
        with report.timed("starting"):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mavstream-chaos-")))
            server = ChaosServer(folder, variant(options.seed))
            stack.callback(server.close)
            chosen = _prepare(server, [*queries(options.seed), *chains(options.seed)])
            subscribers = Subscribers(server.url, list(chosen))
            stack.callback(subscribers.close)
            producers = Producers(server.url)
            stack.callback(producers.close)
        faults = Faults(server, list(chosen), report)
        changes = Changes(server, chosen, options.seed, report)
        try:
            for round_ in make_schedule(options.seed, options.rounds, options.only, options.seconds):
                begin = time.monotonic()
                _run_round(faults, changes, round_, report)
                tell(_line(round_, time.monotonic() - begin))
            with report.timed("draining"):
                acked = producers.stop()
                for part, count in acked.items():
                    report.acked[part.stream] += count
                for name in STREAMS:
                    server.client.complete(name)
                received = subscribers.finish(options.drain)
            with report.timed("checking"):
                _check(server, chosen, acked, received, changes, report)
        except (ServerGone, MavstreamError, TimeoutError, RuntimeError) as error:
            report.violated(f"round {report.rounds}: {error!r}\n{server.log_tail()}")
        if report.failed and options.keep is not None:
            server.copy_to(options.keep)
    return report


def _prepare(server: ChaosServer, chosen: list[ChaosQuery]) -> dict[str, ChaosQuery]:
    """Create everything; returns the queries by their ids."""
    client = server.client
    client.set_optimizer(**OPTIMIZER)
    for name, priority in CLASSES.items():
        client.put_class(name, priority)
    for name in STREAMS:
        client.create_stream(name=name, fields=FIELDS, event_time="ts", lateness=LATENESS[name])
    client.put_table(TABLE, table_rows(0), fields="k:int,label:string,cap:int,generation:int")
    return {
        client.submit(each.flow, name=each.name, class_="usual", qos=each.qos, from_="earliest").id: each
        for each in chosen
    }


def _run_round(faults: Faults, changes: Changes, round_: Round, report: ChaosReport) -> None:
    with report.timed("arming"):
        faults.arm(round_)
    with report.timed("changing"):
        changes.begin(round_)
    with report.timed("feeding"):
        time.sleep(round_.feed_s)
    with report.timed("changing"):
        changes.note_decisions()
    with report.timed("faults and recovery"):
        faults.strike(round_)
    with report.timed("changing"):
        changes.end()
    report.rounds += 1


def _check(
    server: ChaosServer,
    chosen: dict[str, ChaosQuery],
    acked: Acked,
    received: dict[str, Received],
    changes: Changes,
    report: ChaosReport,
) -> None:
    shed = next(id_ for id_, query in chosen.items() if query.check is Check.SHED)
    report.rows_shed = server.client.query(shed).qos().shed.rows
    expected = Expected(acked)
    checks = AnswerChecks(expected, History(changes.pauses, changes.puts, report.rows_shed), report)
    for id_, query in (chosen | changes.started).items():
        stored = read_results(server.url, id_)
        checks.check(query, received.get(id_, stored), stored)
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


def _line(round_: Round, seconds: float) -> str:
    what = round_.failpoint or round_.fault or "no fault"
    return f"round {round_.number}: {seconds:.2f} s, {what}, change: {round_.change or 'none'}"
