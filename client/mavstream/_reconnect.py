"""Opening a websocket again after it was lost, and knowing when not to."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import count

from mavstream._errors import (
    ConnectionLost,
    ServerProblem,
    TooMany,
    TransportError,
    refusal_of,
)
from mavstream._retry import Retry
from mavstream._steps import Pause, Talk
from mavstream_protocol import MavstreamError


def open_again(attempt: Callable[[], Talk[None]], cause: MavstreamError, retry: Retry) -> Talk[None]:
    """Try until the websocket is open, with growing pauses; raises what no repetition would change."""
    until = time.monotonic() + retry.patience
    for failures in count(1):
        cause = _worth_repeating(cause)
        if time.monotonic() >= until:
            raise cause
        yield Pause(retry.pause(failures, random.random()))
        try:
            yield from attempt()
        except (TransportError, ServerProblem, TooMany) as error:
            cause = error
        else:
            return


def _worth_repeating(cause: MavstreamError) -> MavstreamError:
    refusal = refusal_of(cause) if isinstance(cause, ConnectionLost) else None
    if refusal is None:
        return cause
    if isinstance(refusal, TooMany):
        return refusal
    raise refusal from None
