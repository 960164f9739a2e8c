"""The simulator: the same policies as in the live engine, on cost models and in virtual time."""

from mavstream_server.simulation.entry import compare, simulate
from mavstream_server.simulation.loading import load, names
from mavstream_server.simulation.metrics import ClassFigures
from mavstream_server.simulation.model import Workload
from mavstream_server.simulation.problems import InvalidWorkload, UnknownWorkload
from mavstream_server.simulation.result import Result

__all__ = [
    "ClassFigures",
    "InvalidWorkload",
    "Result",
    "UnknownWorkload",
    "Workload",
    "compare",
    "load",
    "names",
    "simulate",
]
