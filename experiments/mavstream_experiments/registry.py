"""The registry of experiments: each module of the packages below declares its own."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

from mavstream_experiments.model import Experiment
from mavstream_protocol.errors import MavstreamError

_known: dict[str, Experiment] = {}


class UnknownExperiment(MavstreamError):
    """A name that no experiment has."""

    code = "unknown_experiment"


def register(experiment: Experiment) -> Experiment:
    """Make an experiment known by its name."""
    if experiment.name in _known:
        raise ValueError(f"experiment {experiment.name!r} is declared twice")
    _known[experiment.name] = experiment
    return experiment


def experiments() -> dict[str, Experiment]:
    """Return all experiments by name, in the order of the papers."""
    from mavstream_experiments import papers

    for module in walk_packages(papers.__path__, f"{papers.__name__}."):
        import_module(module.name)
    return dict(sorted(_known.items()))


def experiment(name: str) -> Experiment:
    """Return an experiment by name; raises UnknownExperiment."""
    known = experiments()
    if name not in known:
        raise UnknownExperiment(f"unknown experiment {name!r}; there are: {', '.join(known)}")
    return known[name]
