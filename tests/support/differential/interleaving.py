"""Runs with random events: rows that arrive meanwhile, policy switches, restored snapshots."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from tests.support.differential.cases import Case
from tests.support.differential.engine_runs import CHOICES, SMALL_SEGMENTS, TRAINS, finish, written
from tests.support.differential.scripts import Row

from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

_MOST_ROWS = 2000
_WRITTEN = object()


class TooLarge(Exception):
    """A case with too many rows between its operators."""


def started(
    case: Case, streams: list[ScriptedStream], clock: ManualClock, random: Random, **more: Any
) -> PlanRun:
    """Start a case with a train and a policy drawn at random."""
    policy, options = random.choice(CHOICES)
    train = random.choice(TRAINS)
    return run_plan(
        case.nodes,
        case.root,
        streams,
        clock=clock,
        policy=policy,
        policy_options=options,
        train=train,
        **more,
    )


def run_bounded(case: Case) -> list[Row]:
    """Return the answer of a plain run; raises TooLarge and QueryBroke."""
    with written(case, None) as streams:
        run = run_plan(case.nodes, case.root, streams, train=64)
        while run.engine.step():
            if any(operator.rows_out > _MOST_ROWS for operator in run.query.network.operators.values()):
                raise TooLarge(case.seed)
        finish(run)
        return run.answers()


def run_live(case: Case, random: Random) -> list[Row]:
    """Write the streams frame by frame while the query runs and policies take turns; return the answer."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as open_streams:
        options = random.choice((None, SMALL_SEGMENTS))
        writers = [script.open(Path(directory), options) for script in case.scripts]
        for writer in writers:
            open_streams.callback(writer.stream.close)
        clock = ManualClock()
        run = started(case, [writer.stream for writer in writers], clock, random)
        waiting = [writer.steps(random) for writer in writers]
        while waiting:
            writing = random.choice(waiting)
            if next(writing, _WRITTEN) is _WRITTEN:
                waiting.remove(writing)
            run.engine.run(random.choice((0, 1, 1, 2, 5)))
            if random.random() < 0.2:
                run.engine.switch(*random.choice(CHOICES))
            if random.random() < 0.2:
                clock.advance(seconds=1)
        finish(run)
        return run.answers()


def run_restored(case: Case, random: Random) -> list[Row]:
    """Take a snapshot at a random step and continue in a new engine; returns both parts of the answer."""
    with written(case, random.randrange(1000), random.random() < 0.3) as streams:
        clock = ManualClock()
        run = started(case, streams, clock, random)
        saved, before = run.engine.snapshot(run.query.id), run.answers()
        # Reservoir sampling: every step is equally likely to be the one whose snapshot is kept.
        for number in count(2):
            if not run.engine.step() or not run.query.active:
                break
            if random.randrange(number) == 0:
                saved, before = run.engine.snapshot(run.query.id), run.answers()
        again = started(case, streams, clock, random, saved=saved)
        finish(again)
        return before + again.answers()
