"""Simulator of the scheduling policies of the live engine, on cost models and in virtual time."""

from mavstream_server.simulation.entry import compare, simulate
from mavstream_server.simulation.report.metrics import ResponseMetrics
from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.workload.errors import InvalidWorkload, UnknownWorkload
from mavstream_server.simulation.workload.loading import load, names
from mavstream_server.simulation.workload.model import Workload

__all__ = [
    "InvalidWorkload",
    "ResponseMetrics",
    "Result",
    "UnknownWorkload",
    "Workload",
    "compare",
    "load",
    "names",
    "simulate",
]
