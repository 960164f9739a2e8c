"""Entry points for programs: simulate a workload under a policy, or compare several policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.run.execute import run
from mavstream_server.simulation.scenario import ResponseFrom, Scenario, Service, SourceOrder, StatisticsKind
from mavstream_server.simulation.workload.expansion import expand
from mavstream_server.simulation.workload.loading import load
from mavstream_server.simulation.workload.model import Utilisation, Workload

PolicyChoice = str | tuple[str, Mapping[str, Any]]
"""A policy name, alone or with options."""


def simulate(
    workload: str | Path | Workload,
    policy: str,
    options: Mapping[str, Any] | None = None,
    *,
    cores: int | None = None,
    source_cores: int | None = None,
    source_order: SourceOrder | str | None = None,
    seconds: float | None = None,
    seed: int = 0,
    utilisation: float | None = None,
    sources: Service | str | None = None,
    statistics: StatisticsKind | str | None = None,
    response_from: ResponseFrom | str | None = None,
    parameters: Mapping[str, float] | None = None,
    warm_up_s: float = 0.0,
    digest: bool = False,
) -> Result:
    """Run a workload (a name, a file or a model) under a policy.

    Arguments that are None default to the values of the workload. Options of the policy override those that
    the workload sets for it. Raises UnknownWorkload, InvalidWorkload or InvalidPolicy.

        result = simulate("A", "cqc", utilisation=0.95)
        result.classes["H"].mean_ms
    """
    model = workload if isinstance(workload, Workload) else load(workload, parameters)
    scenario = build_scenario(
        model,
        cores=cores,
        source_cores=source_cores,
        source_order=source_order,
        seconds=seconds,
        utilisation=utilisation,
        sources=sources,
        statistics=statistics,
        response_from=response_from,
    )
    chosen = {**model.policies.get(policy, {}), **(options or {})}
    return run(scenario, policy, chosen, seed=seed, warm_up_s=warm_up_s, digest=digest)


def compare(
    workload: str | Path | Workload, policies: Iterable[PolicyChoice], **settings: Any
) -> dict[str, Result]:
    """Run a workload under several policies, with the same arrivals and random draws for each.

    `settings` are those of `simulate`. A policy that is named twice gets a number appended.
    """
    found: dict[str, Result] = {}
    for choice in policies:
        name, options = (choice, None) if isinstance(choice, str) else choice
        same = sum(known.split("#")[0] == name for known in found)
        found[f"{name}#{same + 1}" if same else name] = simulate(workload, name, options, **settings)
    return found


def build_scenario(
    model: Workload,
    *,
    cores: int | None = None,
    source_cores: int | None = None,
    source_order: SourceOrder | str | None = None,
    seconds: float | None = None,
    utilisation: float | None = None,
    sources: Service | str | None = None,
    statistics: StatisticsKind | str | None = None,
    response_from: ResponseFrom | str | None = None,
) -> Scenario:
    """Return the scenario of a workload, with some of its settings replaced."""
    update: dict[str, Any] = {"cores": cores, "seconds": seconds}
    if utilisation is not None:
        known = model.utilisation or Utilisation(of=utilisation)
        update["utilisation"] = Utilisation.model_validate({**known.model_dump(), "of": utilisation})
    if statistics is not None:
        update["statistics"] = StatisticsKind(statistics)
    if response_from is not None:
        update["response_from"] = ResponseFrom(response_from)
    served = {
        "service": None if sources is None else Service(sources),
        "cores": source_cores,
        "order": None if source_order is None else SourceOrder(source_order),
    }
    chosen = {name: value for name, value in served.items() if value is not None}
    if chosen:
        update["sources"] = model.sources.model_copy(update=chosen)
    changed = {name: value for name, value in update.items() if value is not None}
    return expand(model.model_copy(update=changed))
