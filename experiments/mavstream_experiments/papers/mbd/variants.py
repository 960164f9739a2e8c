"""Options of MBD with one or more of its modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODULES = ("dvp", "ivp", "dsp", "isp")
"""The dissertation's modules against priority inversion."""


def mbd(inversion: str = "none", selectivity: str = "none", priority: str = "none") -> Mapping[str, Any]:
    """Return options of MBD with these modules; without any it is what the dissertation calls MBD."""
    return {"inversion": inversion, "selectivity": selectivity, "priority": priority}
