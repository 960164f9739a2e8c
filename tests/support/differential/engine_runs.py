"""Runs of a case in the engine, with different frames, trains and policies."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.differential.cases import Case
from tests.support.differential.scripts import Row

from mavstream_server.engine.states import QueryState
from mavstream_server.log.options import LogOptions
from mavstream_server.scheduling.registry import POLICIES
from mavstream_server.testing import PlanRun, ScriptedStream, run_plan

TRAINS = (1, 7, 64, 4096)
CHOICES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    *((name, {}) for name in sorted(POLICIES)),
    ("rr", {"tuples": 3}),
    ("rr", {"unit": "query"}),
    ("hr", {"unit": "query"}),
    ("rb", {"unit": "query"}),
    ("cqc", {"inner": {"policy": "segment"}}),
    ("cqc", {"train": 5, "inner": {"policy": "rr", "options": {"unit": "query"}}}),
)


# A new segment, with new dictionaries of strings, every few frames.
SMALL_SEGMENTS = LogOptions(segment_bytes=4096, segment_texts=5)


class QueryBroke(Exception):
    """A query that did not finish."""


@dataclass(frozen=True, slots=True)
class Variant:
    """How a case is run; the answer must not depend on it."""

    cuts: int | None = None
    """Seed of the frame cuts; None leaves each step of a script in one frame."""
    train: int = 4096
    policy: str = "rr"
    options: tuple[tuple[str, Any], ...] = ()
    small_segments: bool = False
    piece: int | None = None
    """The rows and groups that operators process at once, where they work in pieces; None for many."""


def random_variants(random: Random, count: int) -> list[Variant]:
    """Return different ways to run a case."""
    made = []
    for _ in range(count):
        policy, options = random.choice(CHOICES)
        cuts = random.choice((None, random.randrange(1000)))
        train, small = random.choice(TRAINS), random.random() < 0.3
        piece = random.choice((None, 1, 3))
        made.append(Variant(cuts, train, policy, tuple(options.items()), small, piece))
    return made


@contextmanager
def in_pieces(size: int | None) -> Iterator[None]:
    """Let operators work in pieces of this size as long as the context; None leaves it as it is."""
    with pytest.MonkeyPatch.context() as patch:
        if size is not None:
            patch.setattr("mavstream_server.columns.pieces.AT_ONCE", size)
        yield


@contextmanager
def written(case: Case, cuts: int | None, small_segments: bool = False) -> Iterator[list[ScriptedStream]]:
    """Write a case's streams to logs that live as long as the context."""
    with tempfile.TemporaryDirectory() as directory:
        random = None if cuts is None else Random(cuts)
        options = SMALL_SEGMENTS if small_segments else None
        streams = [script.write(Path(directory), random, options) for script in case.scripts]
        try:
            yield streams
        finally:
            for stream in streams:
                stream.close()


def run_case(case: Case, variant: Variant) -> list[Row]:
    """Return the engine's answer; raises QueryBroke."""
    with written(case, variant.cuts, variant.small_segments) as streams, in_pieces(variant.piece):
        run = run_plan(
            case.nodes,
            case.root,
            streams,
            policy=variant.policy,
            policy_options=dict(variant.options),
            train=variant.train,
        )
        finish(run)
        return run.answers()


def finish(run: PlanRun) -> None:
    """Run a query to its end; raises QueryBroke if it fails or stops earlier."""
    run.engine.run()
    if run.query.state is not QueryState.FINISHED:
        raise QueryBroke(f"the query is {run.query.state}: {run.query.reason}")
