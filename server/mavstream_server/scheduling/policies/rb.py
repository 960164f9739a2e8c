"""Rate-based: highest global output rate first, with a decision after every few tuples."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mavstream_server.scheduling.bases.rate_ranked import RateOptions, RateRankedPolicy
from mavstream_server.scheduling.registry import register


class RateBasedOptions(RateOptions):
    """Options of `rb`."""

    tuples: Annotated[int, Field(gt=0)] | None = 64
    """Most tuples that an operator takes between two decisions. 1 in the paper, where calls are free; a live
    call costs the same for 1 tuple as for hundreds."""


@register
class RateBased(RateRankedPolicy[RateBasedOptions]):
    """PRB paper, 3.2: priority S_1 ... S_n / (C_1 + C_2 S_1 + ... + C_n S_n-1 ... S_1): global output rate.

    A decision is made after every few tuples of an operator, where `hr` runs whole trains. Answers come
    early; a tuple of higher rate waits for at most one short train, costly and selective paths wait long.
    """

    name = "rb"
    optimises = "mean response time over all queries, with short trains"
    Options = RateBasedOptions
