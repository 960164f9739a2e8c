"""The alternate plan generator: derives equivalent plans by rules and estimates their costs from metrics."""

from mavstream_server.planning.rewriting.alternates import Alternate, alternates
from mavstream_server.planning.rewriting.choice import PlanChoice, choose
from mavstream_server.planning.rewriting.costing.metrics import PlanMetrics
from mavstream_server.planning.rewriting.rule import RewriteStep

__all__ = ["Alternate", "PlanChoice", "PlanMetrics", "RewriteStep", "alternates", "choose"]
