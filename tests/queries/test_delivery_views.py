"""The delivery guarantee in force, by settings, state of the query and last checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from mavstream_protocol.wire.resources import ActualState
from mavstream_server.core.metrics import CheckpointMetrics, Latency, QueryMetrics
from mavstream_server.core.settings import Settings
from mavstream_server.queries.views.delivery import Durability, checkpoint_info

RUNNING = ActualState.RUNNING
WRITTEN = CheckpointMetrics(1_000_000, 4096, 2500, 0, replaying=False, error=None)


def metrics(checkpoint: CheckpointMetrics | None) -> QueryMetrics:
    known = QueryMetrics("q", "running", None, "default", 1, 0, 0, 0, 0, 0, 0, Latency(), {}, {}, ())
    return known._replace(checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("state", "checkpoint", "guarantee", "detail"),
    [
        (RUNNING, WRITTEN, "exactly_once", "continues from its last checkpoint"),
        (ActualState.PAUSED, WRITTEN, "exactly_once", "continues from its last checkpoint"),
        (RUNNING, WRITTEN._replace(error="disk full"), "exactly_once", "could not be written (disk full)"),
        (RUNNING, WRITTEN._replace(taken_us=None, error="disk full"), "at_most_once", "failed (disk full)"),
        (RUNNING, None, "at_most_once", "there is no checkpoint: after a crash"),
        (ActualState.SCHEDULED, None, None, "has not started"),
        (ActualState.STARTING, None, None, "no engine"),
        (ActualState.FINISHED, None, None, "has finished"),
        (ActualState.STOPPED, None, None, "was stopped"),
        (ActualState.FAILED, None, None, "has failed"),
    ],
)
def test_the_guarantee_follows_from_the_last_checkpoint(
    state: ActualState, checkpoint: CheckpointMetrics | None, guarantee: str | None, detail: str
) -> None:
    delivery = Durability(checkpoints=True, sync=False).delivery(state, metrics(checkpoint))
    assert delivery.guarantee == guarantee
    assert detail in delivery.detail


def test_the_guarantee_is_not_known_without_metrics() -> None:
    assert Durability(checkpoints=True, sync=False).delivery(RUNNING, None).guarantee is None


def test_without_checkpoints_rows_take_part_at_most_once() -> None:
    delivery = Durability(checkpoints=False, sync=False).delivery(RUNNING, None)
    assert delivery.guarantee == "at_most_once"
    assert "checkpoints are off" in delivery.detail


@pytest.mark.parametrize(
    ("interval", "delivery", "survives"),
    [
        (5_000_000, "sync", ("rows", "results", "checkpoints")),
        (None, "sync", ("rows", "results")),
        (5_000_000, "process", ()),
    ],
)
def test_only_what_is_synced_survives_power_loss(
    tmp_path: Path, interval: int | None, delivery: str, survives: tuple[str, ...]
) -> None:
    settings = Settings.model_validate(
        {"data": tmp_path, "checkpoint_interval": interval, "delivery": delivery}
    )
    assert Durability.of(settings).delivery(RUNNING, metrics(None)).survives_power_loss == survives


def test_the_age_of_a_checkpoint_is_never_negative_though_clocks_may_be_set() -> None:
    assert checkpoint_info(WRITTEN, 4_500_000).age_s == 3.5
    assert checkpoint_info(WRITTEN, 0).age_s == 0


def test_size_and_duration_are_those_of_a_checkpoint_that_exists() -> None:
    found = checkpoint_info(WRITTEN, 1_000_000)
    assert (found.bytes, found.duration_ms) == (4096, 2.5)
    lost = checkpoint_info(WRITTEN._replace(taken_us=None), 1_000_000)
    assert (lost.taken, lost.age_s, lost.bytes, lost.duration_ms) == (None, None, None, None)
