"""Queries as SQL through the service: how long it takes to parse, plan, admit and register one."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median, quantiles
from typing import Any

from bench.load.server_process import ServerProcess, server
from bench.outcome import Outcome, text_table
from bench.workload.readings import EVENT_TIME, FIELDS
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.sql import Catalog, parse_select
from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.typed_plan import StreamShape

GOAL_MS = 15.0
"""The most that parsing, planning and admitting one query may take through HTTP, at the median."""
_STREAM: dict[str, Any] = {"name": "readings", "fields": FIELDS, "event_time": EVENT_TIME}
_QUERIES = {
    "select": "SELECT ts, location, temperature * 1.8 + 32 AS fahrenheit FROM readings "
    "WHERE temperature > 30 AND humidity < 40",
    "aggregate": "SELECT location, count(*) AS n, avg(temperature) AS mean, max(temperature) AS most, "
    "window_end FROM TUMBLE(readings, INTERVAL '1' SECOND) WHERE humidity < 40 "
    "GROUP BY location, window_end HAVING count(*) > 10",
    "join": "SELECT l.location, l.temperature, r.humidity FROM readings l JOIN readings r "
    "ON l.location = r.location AND r.ts BETWEEN l.ts - INTERVAL '500' MILLISECOND AND "
    "l.ts + INTERVAL '500' MILLISECOND WHERE l.temperature > 35 AND r.humidity < 20",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--rounds", type=int, default=200, help="requests per kind (default: 200)")


def run(options: argparse.Namespace) -> Outcome:
    """Measure each query as SQL and as a plan, by turns."""
    spec = StreamSpec.model_validate(_STREAM)
    catalog = Catalog({spec.name: StreamShape(spec.schema(), spec.event_time)})
    metrics: dict[str, Any] = {}
    correct = True
    with server() as running:
        running.post("/v1/streams", _STREAM)
        for name, sql in _QUERIES.items():
            plan = parse_select(sql, catalog)
            given = {"sql": {"sql": sql}, "plan": {"plan": plan.model_dump(mode="json", exclude_unset=True)}}
            answer = running.http.post("/v1/queries/validate", json=given["sql"]).json()
            # What runs is the plan, so a query from SQL runs as fast as one from the plan.
            correct = correct and answer["plan"] == plan.model_dump(mode="json", by_alias=True)
            metrics[name] = {
                "parse_ms": _milliseconds([_timed(partial(parse_select, sql, catalog)) for _ in range(50)]),
                "type_ms": _milliseconds([_timed(partial(infer, plan, catalog.streams)) for _ in range(50)]),
                **_through_http(running, given, options.rounds),
            }
    slowest = max(found["validate_sql_ms"]["p50"] for found in metrics.values())
    metrics |= {"goal_ms": GOAL_MS, "slowest_p50_ms": slowest, "goal_met": slowest <= GOAL_MS}
    return Outcome(metrics, _text(metrics), correct)


def _through_http(running: ServerProcess, given: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Time validation, which parses, plans and assesses, and registration, for SQL and plans by turns."""
    taken: dict[str, list[float]] = {}
    for number in range(rounds):
        for form, body in given.items():
            document = {"name": f"{form}_{number}", **body}
            validated = _timed(partial(running.http.post, "/v1/queries/validate", json=document))
            registered = _timed(partial(running.post, "/v1/queries", document))
            running.http.delete(f"/v1/queries/{document['name']}").raise_for_status()
            taken.setdefault(f"validate_{form}_ms", []).append(validated)
            taken.setdefault(f"register_{form}_ms", []).append(registered)
    return {name: _milliseconds(values) for name, values in taken.items()}


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    return {
        "p50": round(1000 * median(seconds), 2),
        "p95": round(1000 * quantiles(seconds, n=20)[-1], 2),
    }


def _text(metrics: dict[str, Any]) -> str:
    columns = ["parse", "type", "validate_sql", "validate_plan", "register_sql", "register_plan"]
    rows = [[name, *(f"{metrics[name][f'{one}_ms']['p50']:.2f}" for one in columns)] for name in _QUERIES]
    verdict = "met" if metrics["goal_met"] else "missed"
    head = "Median milliseconds; validate and register through HTTP"
    goal = f"goal of {GOAL_MS:g} ms to parse, plan and admit through HTTP: {verdict}"
    return "\n".join([head, text_table(["query", *columns], rows), goal])
