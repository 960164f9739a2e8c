"""Care: what trunks need while they run, so that nobody suffers from sharing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mavstream_protocol.errors import MavstreamError
from mavstream_server.engine.sharing.membership import Membership
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.operators.operator import QueryFailed

if TYPE_CHECKING:
    from mavstream_server.engine.engine import Engine

_PATIENCE = 5_000_000  # ns that others may wait for a query without room


class PipelineUpkeep:
    """Looks after trunks that keep rows back, are broken, or have too few queries or one without room.

    It hears of them while slices are run, and acts between two of them.
    """

    def __init__(
        self,
        engine: Engine,
        cut: Callable[[Membership, int], None],
        charge: Callable[[SharedPipeline], None],
        call: Callable[[int], None],
    ) -> None:
        """`cut` lets a query leave its trunk, `charge` finds a trunk the right class.

        `call` is told a time at which something will be due.
        """
        self._engine = engine
        self._cut = cut
        self._charge = charge
        self._call = call
        self._gathering: dict[
            SharedPipeline, tuple[int, int]
        ] = {}  # those that keep rows back, since and until when
        self._troubled: dict[SharedPipeline, None] = {}

    def times(self, now: int) -> list[int]:
        """Return when something is due."""
        crowded = [trunk.crowded_since for trunk in self._troubled]
        return [
            *(until for _, until in self._gathering.values()),
            *(now if since is None else since + _PATIENCE for since in crowded),
        ]

    # Rows that are kept back

    def gathers(self, trunk: SharedPipeline) -> None:
        """A trunk keeps rows back for more to come: as long as its source may."""
        (source,) = trunk.sources.values()
        now = self._engine.clock.now()
        self._gathering[trunk] = now, now + source.cap
        self._call(now + source.cap)

    def flush(self, now: int | None) -> bool:
        """Hand on what was kept back long enough by now, or all; returns whether there was anything."""
        flushed = False
        for trunk, (since, until) in tuple(self._gathering.items()):
            if now is None or not since <= now < until or not trunk.fan_out.gathered:
                del self._gathering[trunk]
                flushed = flushed or bool(trunk.fan_out.gathered)
                trunk.fan_out.flush()
        return flushed

    # Trouble

    def trouble(self, trunk: SharedPipeline) -> None:
        """Look at a trunk at the next step."""
        self._troubled[trunk] = None
        self._call(0)

    def is_crowded(self, trunk: SharedPipeline) -> None:
        """A query on the trunk has no room."""
        if trunk.crowded_since is None:
            trunk.crowded_since = self._engine.clock.now()
            self._troubled[trunk] = None
            self._call(trunk.crowded_since + _PATIENCE)

    def ended(self, trunk: SharedPipeline) -> None:
        """A trunk runs no more."""
        self._gathering.pop(trunk, None)
        if trunk.error is not None:
            self.trouble(trunk)

    def check_memory(self, trunk: SharedPipeline) -> None:
        """Look at a trunk's queries at the next step if what is held for all is more than one may hold."""
        if trunk.lowest_limit is not None and trunk.memory.resident > trunk.lowest_limit:
            self.trouble(trunk)

    def help(self, now: int) -> bool:
        """Do what can be done for trunks in trouble; returns whether that was anything."""
        done = False
        for trunk in tuple(self._troubled):
            if self._helped(trunk, now):
                del self._troubled[trunk]
                done = True
        return done

    def _helped(self, trunk: SharedPipeline, now: int) -> bool:
        if trunk.error is not None:
            self._fail_with(trunk, *trunk.error)
            return True
        if not trunk.active:
            return True
        for part in tuple(trunk.parts):
            self._engine.check_memory(part.query)
        if len(trunk.parts) < 2:
            for part in tuple(trunk.parts):
                self._cut(part, now)
            self._engine.uproot(trunk)
            return True
        self._charge(trunk)
        return self._relieved(trunk, now)

    def _relieved(self, trunk: SharedPipeline, now: int) -> bool:
        """Let queries without room leave if others have waited long enough; returns whether all is well."""
        if not trunk.crowded:
            trunk.crowded_since = None
            return True
        full = [part for part in trunk.parts if not part.has_room]
        since = trunk.crowded_since
        if since is None or len(full) == len(trunk.parts):
            trunk.crowded_since = now  # nobody waits for another
            return False
        if since <= now < since + _PATIENCE:
            return False
        for part in full:
            part.strand.was_slow(now)
            self._cut(part, now)
        trunk.crowded_since = None
        self._engine.intake.unblock(trunk, now)
        return len(trunk.parts) >= 2

    def _fail_with(self, trunk: SharedPipeline, operator: str, error: Exception) -> None:
        """Let the queries fail as they would have alone."""
        for part in tuple(trunk.parts):
            own = part.own_name(operator)
            told = error
            if isinstance(error, MavstreamError):
                told = QueryFailed(str(error).replace(repr(operator), repr(own)))
            self._engine.fail(part.query, own, told)
