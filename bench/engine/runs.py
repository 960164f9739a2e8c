"""Runs of a query over complete streams, by the engine and by hand, ready to be timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.workload.queries import BenchQuery
from bench.workload.readings import Stream
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.scheduling import DEFAULT_SCHEDULER
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.process.allocator import keep_freed_memory
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.states import QueryState
from mavstream_server.operators.output import Sink

Run = Callable[[], object]
"""Reads the logs from their beginning to their end; to be called once."""


def engine_run(query: BenchQuery, streams: Sequence[Stream], sink: Sink) -> Run:
    """Start a query in an engine of its own, with a server's default policy; runs until it has finished."""
    keep_freed_memory()  # as an engine process does
    plan = infer(query.plan(), {stream.name: stream.shape for stream in streams})
    engine = Engine(policy=DEFAULT_SCHEDULER.policy, options=DEFAULT_SCHEDULER.options)
    for stream in streams:
        engine.attach(stream.name, stream.reader())
    running = engine.start(QueryRequest("bench", plan, earliest=True), sink)

    def run() -> None:
        engine.run()
        if running.state is not QueryState.FINISHED:
            raise RuntimeError(f"the query is {running.state.value} instead of finished: {running.reason}")

    return run


def loop_run(query: BenchQuery, streams: Sequence[Stream]) -> Run:
    """Prepare the loop by hand; the run counts its answers."""
    readers = [stream.reader() for stream in streams]
    return lambda: sum(len(part[0]) for part in query.loop(*readers))
