"""A case as a chain: its plan is split into queries, each of which reads the results of the one below."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.support.differential.cases import Case
from tests.support.differential.engine_runs import CHOICES, SMALL_SEGMENTS, TRAINS, QueryBroke
from tests.support.differential.plans import Nodes
from tests.support.differential.scripts import Row

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import InputRef, Plan
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sinks import ResultLogSink
from mavstream_server.engine.states import QueryState
from mavstream_server.log.format.description import LogDescription
from mavstream_server.log.options import LogOptions
from mavstream_server.log.reader import LogReader
from mavstream_server.log.result_reader import ResultReader
from mavstream_server.log.writer import LogWriter
from mavstream_server.testing import ManualClock

_WRITTEN = object()


@dataclass(frozen=True, slots=True)
class Link:
    """One query of a chain."""

    name: str
    plan: Plan


def split_case(case: Case, random: Random) -> list[Link] | None:
    """Split a plan at one or two random nodes; None if it has none to split at."""
    links: list[Link] = []
    nodes, root = case.nodes, case.root
    for number in range(random.choice((1, 1, 2))):
        cuts = _cuts(nodes, root)
        if not cuts:
            break
        cut, name = random.choice(cuts), f"below{number}"
        links.append(Link(name, Plan.parse({"root": cut, "nodes": _needed(nodes, cut)})))
        source = f"results{number}"
        nodes = {
            **{key: _reading(node, cut, source) for key, node in nodes.items()},
            source: {"op": "source", "query": name},
        }
        nodes = _needed(nodes, root)
    if not links:
        return None
    return [*links, Link("top", Plan.parse({"root": root, "nodes": nodes}))]


def typed_chain(case: Case, links: list[Link]) -> list[TypedPlan]:
    """Return the typed plan of each query."""
    shapes = {s.name: StreamShape(Schema(s.fields), s.event_time) for s in case.scripts}
    plans = []
    for link in links:
        plans.append(infer(link.plan, shapes))
        shapes[link.name] = plans[-1].results(_id(link.name))
    return plans


def _id(name: str) -> str:
    return f"{name}-1"


def _cuts(nodes: Nodes, root: str) -> list[str]:
    plan = Plan.parse({"root": root, "nodes": nodes})
    read = {text for node in plan.nodes.values() for text in node.reads().values()}
    return sorted(
        text for text in read if plan.nodes[InputRef.parse(text).node].op not in ("source", "table")
    )


def _reading(node: Mapping[str, Any], cut: str, source: str) -> dict[str, Any]:
    changed = dict(node)
    for field in ("input", "left", "right"):
        if changed.get(field) == cut:
            changed[field] = source
    if "inputs" in changed:
        changed["inputs"] = [source if one == cut else one for one in changed["inputs"]]
    return changed


def _needed(nodes: Nodes, root: str) -> Nodes:
    """Return the nodes that lead to a root."""
    found: Nodes = {}
    waiting = [InputRef.parse(root).node]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = nodes[name]
            node = nodes[name]
            read = [node[field] for field in ("input", "left", "right") if field in node]
            waiting += [InputRef.parse(text).node for text in (*read, *node.get("inputs", ()))]
    return {name: nodes[name] for name in nodes if name in found}


class ChainRun:
    """The queries of a chain in an engine, with their result logs in a directory."""

    def __init__(
        self,
        directory: Path,
        case: Case,
        links: list[Link],
        streams: Mapping[str, LogReader],
        random: Random,
        saved: Mapping[str, bytes],
        unread: int = 1 << 20,
    ) -> None:
        policy, options = random.choice(CHOICES)
        self.clock = ManualClock()
        self.engine = Engine(self.clock, policy, options, train=random.choice(TRAINS), unread_results=unread)
        for name, reader in streams.items():
            self.engine.attach(name, reader)
        self.queries: list[RunningQuery] = []
        self._open = ExitStack()
        log_options = random.choice((LogOptions(), SMALL_SEGMENTS))
        for link, plan in zip(links, typed_chain(case, links), strict=True):
            path = directory / _id(link.name)
            writer = self._open.enter_context(LogWriter(path, LogDescription(plan.schema), log_options))

            def appended(id_: str = _id(link.name)) -> None:
                self.engine.chains.appended(id_)

            sink = ResultLogSink(writer, plan.schema.names, 1, appended=appended)
            request = QueryRequest(_id(link.name), plan, earliest=True)
            self.queries.append(self.engine.start(request, sink, saved.get(link.name)))
            reader = ResultReader(path)
            self._open.callback(reader.close)
            self.engine.attach_results(link.name, _id(link.name), reader)
        self.schema = plan.schema
        self.path = path

    def snapshots(self, links: list[Link], random: Random, share: float = 0.5) -> dict[str, bytes]:
        """Return the snapshots of a share of the queries that run."""
        pairs = zip(links, self.queries, strict=True)
        return {
            link.name: self.engine.snapshot(query.id)
            for link, query in pairs
            if query.active and query.output.replay is None and random.random() < share
        }

    def answers(self) -> list[Row]:
        """Return the results of the last query."""
        reader = LogReader(self.path)
        try:
            return list(_rows(reader, self.schema))
        finally:
            reader.close()

    def check_finished(self) -> None:
        """Raise QueryBroke unless all queries have reached their end."""
        for query in self.queries:
            if query.state is not QueryState.FINISHED:
                raise QueryBroke(f"query {query.id} is {query.state}: {query.reason}")

    def close(self) -> None:
        """Close the result logs."""
        self._open.close()


def _rows(reader: LogReader, schema: Schema) -> Iterator[Row]:
    cursor = reader.cursor(0)
    while (found := cursor.next()) is not None:
        frame, _ = found
        if frame.rows:
            columns = [frame.column(field.name).to_list(field.type) for field in schema]
            yield from zip(*columns, strict=True)


def run_chain(case: Case, links: list[Link], random: Random, *, unread: int = 1 << 20) -> list[Row]:
    """Write the streams while the queries run, die at times and go on from snapshots; return the answer."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as open_streams:
        options = random.choice((None, SMALL_SEGMENTS))
        writers = [script.open(Path(directory), options) for script in case.scripts]
        for writer in writers:
            open_streams.callback(writer.stream.close)
        streams = {writer.stream.name: writer.stream.reader for writer in writers}
        waiting = [writer.steps(random) for writer in writers]
        results, saved = Path(directory) / "results", dict[str, bytes]()
        run = ChainRun(results, case, links, streams, random, saved, unread)
        saved |= run.snapshots(links, random, 1.0)
        dies = random.random() < 0.5
        while waiting:
            writing = random.choice(waiting)
            if next(writing, _WRITTEN) is _WRITTEN:
                waiting.remove(writing)
            run.engine.run(random.choice((0, 1, 1, 2, 5, 20)))
            if random.random() < 0.2:
                run.engine.switch(*random.choice(CHOICES))
            if not dies:
                continue
            if random.random() < 0.3:
                saved |= run.snapshots(links, random)
            if random.random() < 0.1:
                run.close()
                run = ChainRun(results, case, links, streams, random, saved, unread)
        run.engine.run()
        run.check_finished()
        run.close()
        return run.answers()
