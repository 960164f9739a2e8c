"""Typed plans: the output of inference, which backends instantiate.

Every node class implements the questions that the rest of the system asks about nodes (see `node`).
"""

# Each module lists its node classes in `__all__`, so a new one is added in one place only.
from mavstream_protocol.typed_plan.join_nodes import *  # noqa: F403
from mavstream_protocol.typed_plan.node import *  # noqa: F403
from mavstream_protocol.typed_plan.plan import *  # noqa: F403
from mavstream_protocol.typed_plan.row_nodes import *  # noqa: F403
from mavstream_protocol.typed_plan.window_nodes import *  # noqa: F403
