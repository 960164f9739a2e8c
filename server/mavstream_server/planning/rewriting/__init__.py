"""The alternate plan generator: equivalent plans by rules, costed with measured statistics."""

from mavstream_server.planning.rewriting.alternates import Alternate, alternates
from mavstream_server.planning.rewriting.choice import PlanChoice, choose
from mavstream_server.planning.rewriting.costing.metrics import Figures
from mavstream_server.planning.rewriting.rule import Step

__all__ = ["Alternate", "Figures", "PlanChoice", "Step", "alternates", "choose"]
