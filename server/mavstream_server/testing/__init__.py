"""Test tools: a manual clock, scripted streams, tables and networks, and plans run to completion."""

from mavstream_server.testing.clock import ManualClock, TickingClock
from mavstream_server.testing.costs import take_time
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
    "TickingClock",
    "run_plan",
    "take_time",
]
