"""Runs whose course is drawn at random: rows that come while the query runs, other policies, restored snapshots."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

from differential.cases import Case
from differential.engine_runs import POLICIES, SMALL_SEGMENTS, TRAINS, QueryBroke, finish, written
from differential.scripts import Row

_MOST_ROWS = 2000


class TooLarge(Exception):
    """A case with more rows between its operators than is of use."""


def started(case: Case, streams: list[ScriptedStream], clock: ManualClock, random: Random, **more: Any) -> PlanRun:
    """Start a case with a train and a policy drawn at random."""
    policy, options = random.choice(POLICIES)
    train = random.choice(TRAINS)
    return run_plan(
        case.nodes, case.root, streams, clock=clock, policy=policy, policy_options=options, train=train, **more
    )


def run_bounded(case: Case) -> tuple[list[Row], int]:
    """Return the answer of a plain run and how many steps it took; raises TooLarge and QueryBroke."""
    with written(case, None) as streams:
        clock = ManualClock()
        run = run_plan(case.nodes, case.root, streams, clock=clock, train=64)
        steps = 0
        while run.engine.step():
            steps += 1
            if any(operator.rows_out > _MOST_ROWS for operator in run.query.network.operators.values()):
                raise TooLarge(case.seed)
        finish(run, clock)
        return run.answers(), steps


def run_live(case: Case, random: Random) -> list[Row]:
    """Write the streams frame by frame while the query runs and policies take turns; return the answer."""
    with tempfile.TemporaryDirectory() as directory:
        writers = [script.open(Path(directory), random.choice((None, SMALL_SEGMENTS))) for script in case.scripts]
        clock = ManualClock()
        run = started(case, [writer.stream for writer in writers], clock, random)
        waiting = [writer.steps(random) for writer in writers]
        while waiting:
            writing = random.choice(waiting)
            if next(writing, StopIteration) is StopIteration:
                waiting.remove(writing)
            run.engine.run(random.choice((0, 1, 1, 2, 5)))
            if random.random() < 0.2:
                run.engine.switch(*random.choice(POLICIES))
            if random.random() < 0.2:
                clock.advance(seconds=1)
        finish(run, clock)
        for writer in writers:
            writer.stream.close()
        return run.answers()


def run_restored(case: Case, random: Random, steps: int) -> list[Row]:
    """Take a snapshot after some steps and go on from it in a fresh engine; return both parts of the answer."""
    with written(case, random.randrange(1000), random.random() < 0.3) as streams:
        clock = ManualClock()
        run = started(case, streams, clock, random)
        run.engine.run(random.randrange(max(steps, 1)))
        if not run.query.active:
            return _checked(run)
        saved, before = run.engine.snapshot("q"), run.answers()
        again = started(case, streams, clock, random, saved=saved)
        finish(again, clock)
        return before + again.answers()


def _checked(run: PlanRun) -> list[Row]:
    if run.query.reason is not None:
        raise QueryBroke(f"the query is {run.query.state}: {run.query.reason}")
    return run.answers()
