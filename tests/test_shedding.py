"""Load shedding: which rows go, and that nothing but their positions decides."""

from __future__ import annotations

import numpy as np
import pytest

from mavstream_server.operators.shedding import Shedder

POSITIONS = np.arange(100_000)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.25, 0.5, 0.99, 1.0])
def test_the_share_that_was_asked_for_is_left_out(share: float) -> None:
    kept = Shedder(share).kept(POSITIONS)
    spread = 4 * (share * (1 - share) / len(POSITIONS)) ** 0.5
    assert len(kept) / len(POSITIONS) == pytest.approx(1 - share, abs=spread)


def test_rows_are_spread_evenly() -> None:
    dropped = np.setdiff1d(POSITIONS, Shedder(0.2).kept(POSITIONS))
    per_thousand = np.bincount(dropped // 1000, minlength=100)
    assert per_thousand.min() > 140
    assert per_thousand.max() < 260


def test_how_rows_are_cut_into_batches_makes_no_difference() -> None:
    shedder = Shedder(0.3)
    whole = POSITIONS[shedder.kept(POSITIONS)]
    cuts = np.split(POSITIONS, [1, 2, 500, 501, 70_000])
    parts = np.concatenate([part[shedder.kept(part)] for part in cuts])
    assert (whole == parts).all()


def test_a_larger_share_loses_the_rows_of_a_smaller_one_too() -> None:
    few, many = (set(Shedder(share).kept(POSITIONS).tolist()) for share in (0.5, 0.1))
    assert few < many


def test_a_share_beyond_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"from 0 to 1, 1\.5 came"):
        Shedder(1.5)
