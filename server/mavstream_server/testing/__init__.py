"""Tools for tests: a clock that is advanced by hand, scripted streams and tables, plans run to their end."""

from mavstream_server.testing.clock import ManualClock
from mavstream_server.testing.engines import SteppedEngine
from mavstream_server.testing.network import ScriptedNetwork, ScriptedOperator, ScriptedQuery, Step
from mavstream_server.testing.plans import PlanRun, run_plan
from mavstream_server.testing.streams import ScriptedStream
from mavstream_server.testing.tables import ScriptedTable

__all__ = [
    "ManualClock",
    "PlanRun",
    "ScriptedNetwork",
    "ScriptedOperator",
    "ScriptedQuery",
    "ScriptedStream",
    "ScriptedTable",
    "Step",
    "SteppedEngine",
    "run_plan",
]
