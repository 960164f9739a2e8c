"""The registry of experiments: every module of `papers` registers its own."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

from mavstream_experiments.model import Experiment
from mavstream_protocol.errors import MavstreamError

_known: dict[str, Experiment] = {}


class UnknownExperiment(MavstreamError):
    """The given name is not that of an experiment."""

    code = "unknown_experiment"


def register(experiment: Experiment) -> Experiment:
    """Add an experiment and return it."""
    if experiment.name in _known:
        raise ValueError(f"experiment {experiment.name!r} is registered twice")
    _known[experiment.name] = experiment
    return experiment


def experiments() -> dict[str, Experiment]:
    """Return all experiments by name, in alphabetical order."""
    from mavstream_experiments import papers

    for module in walk_packages(papers.__path__, f"{papers.__name__}."):
        import_module(module.name)
    return dict(sorted(_known.items()))
