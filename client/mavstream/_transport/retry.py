"""Retry with exponential backoff and jitter, and reconnecting a websocket that was lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from mavstream._errors import ConnectionLost, ServerProblem, TooMany, TransportError, refusal_of
from mavstream._transport.steps import Pause, Talk
from mavstream_protocol import MavstreamError


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff with jitter, so that many clients do not retry at the same moment."""

    attempts: int = 4
    """How often a request is sent at most; 1 for no retry."""
    first: float = 0.1
    """The longest pause before the second attempt, in seconds; it doubles with every further one."""
    most: float = 5.0
    """The longest pause of all, in seconds, unless the server asks for a longer one."""
    patience: float = 60.0
    """How long a feed or a subscription tries to reconnect to a server that is gone, in seconds."""

    def pause(self, failures: int, chance: float) -> float:
        """Return the pause after so many failures (1, 2, ...); `chance` is a random number from 0 to 1."""
        longest = min(self.most, self.first * 2.0 ** min(failures - 1, 32))
        return longest * (1 + chance) / 2


DEFAULT_RETRY = Retry()


def open_again(attempt: Callable[[], Talk[None]], cause: MavstreamError, retry: Retry) -> Talk[None]:
    """Reopen a websocket, with backoff between attempts; raises errors that a retry would not change."""
    until = time.monotonic() + retry.patience
    for failures in count(1):
        cause = _retriable(cause)
        if time.monotonic() >= until:
            raise cause
        yield Pause(retry.pause(failures, random.random()))
        try:
            yield from attempt()
        except (TransportError, ServerProblem, TooMany) as error:
            cause = error
        else:
            return


def _retriable(cause: MavstreamError) -> MavstreamError:
    refusal = refusal_of(cause) if isinstance(cause, ConnectionLost) else None
    if refusal is None:
        return cause
    if isinstance(refusal, TooMany):
        return refusal
    raise refusal from None
