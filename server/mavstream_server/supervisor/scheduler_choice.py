"""The scheduling policy in use: stored in the catalog and sent to the engine."""

from __future__ import annotations

from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, SchedulerSettings
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.errors import Refused
from mavstream_server.core.settings import Settings
from mavstream_server.scheduling.registry import POLICIES, check_options
from mavstream_server.supervisor.engine_link import EngineLink


class SchedulerChoice:
    """Returns and changes the scheduling policy, for clients and for the optimizer."""

    def __init__(self, catalog: Catalog, settings: Settings, link: EngineLink) -> None:
        self._catalog = catalog
        self._settings = settings
        self._link = link

    @property
    def current(self) -> SchedulerSettings:
        """The policy in use, and its options."""
        return current_scheduler(self._catalog, self._settings)

    async def choose(self, chosen: SchedulerSettings) -> None:
        """Switch to another policy at once; raises InvalidPolicy, EngineUnavailable, EngineRefused."""
        check_options(chosen.policy, chosen.options)
        await self._link.switch_policy(chosen)
        self._catalog.set_scheduler(chosen)


def check_policy(settings: Settings) -> None:
    """Raise Refused if the settings name a policy that does not exist."""
    policy = settings.policy
    if policy is not None and policy not in POLICIES:
        raise Refused(f"there is no policy '{policy}': expected one of {', '.join(sorted(POLICIES))}")


def current_scheduler(catalog: Catalog, settings: Settings) -> SchedulerSettings:
    """Return the policy that was chosen last, or else the one that the server was started with."""
    stored = catalog.scheduler()
    if stored is not None or settings.policy is None:
        return stored or DEFAULT_SCHEDULER
    return SchedulerSettings(
        policy=settings.policy, options=settings.policy_options, sources=settings.sources
    )
