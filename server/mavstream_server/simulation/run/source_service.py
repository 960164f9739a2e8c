"""Choice of the source service of a run, and of the intake that implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mavstream_server.scheduling.policy import SourceService
from mavstream_server.simulation.run.intake import (
    DirectIntake,
    OwnCoreIntake,
    ScheduledIntake,
    SharedCoreIntake,
    SimulatedIntake,
)
from mavstream_server.simulation.scenario import Scenario, Service

if TYPE_CHECKING:
    from mavstream_server.simulation.run.driver import Driver


def chosen_service(scenario: Scenario, paper: SourceService) -> Service:
    """Return how sources are run: as the scenario says, else on separate cores where there are some.

    Without separate cores, as in the policy's paper; sources that would need a core of their own are then
    run by the policy, as in the live engine.
    """
    service = scenario.sources.service
    if service is not Service.POLICY:
        return service
    if scenario.sources.cores or scenario.cores > 1:
        return Service.OWN_CORE
    return Service.PER_CLASS if paper is SourceService.OWN_CORE else Service(paper.value)


def make_intake(driver: Driver) -> SimulatedIntake:
    """Return the intake for a driver's network and source service."""
    network, service = driver.network, driver.service
    if service is Service.DIRECT:
        readers = [tuple(network.readers[arrivals.name]) for arrivals in network.arrivals]
        return DirectIntake(driver, network.arrivals, readers)
    if service is Service.PER_CLASS:
        return ScheduledIntake(driver, network.sources)
    if service is Service.OWN_CORE:
        return OwnCoreIntake(driver, network.sources, driver.scenario.sources.cores)
    return SharedCoreIntake(driver, network.sources, eager=service is Service.BETWEEN_SLICES)
