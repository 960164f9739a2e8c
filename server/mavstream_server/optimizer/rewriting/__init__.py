"""The alternate plan generator: equivalent plans by rules, costed with measured statistics."""

from mavstream_server.optimizer.rewriting.alternates import Alternate, alternates
from mavstream_server.optimizer.rewriting.choice import PlanChoice, choose
from mavstream_server.optimizer.rewriting.costing.figures import Figures
from mavstream_server.optimizer.rewriting.rule import Step

__all__ = ["Alternate", "Figures", "PlanChoice", "Step", "alternates", "choose"]
