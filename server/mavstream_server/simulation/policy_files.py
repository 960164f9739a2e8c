"""Policies of one's own: `module:Class`, found where Python finds modules and in the current folder."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from mavstream_protocol.errors import ProblemItem
from mavstream_server.scheduling.policy import Policy
from mavstream_server.scheduling.registry import POLICIES, InvalidPolicy, register


def policy_name(text: str) -> str:
    """Return the name of a policy; `module:Class` is imported and registered. Raises InvalidPolicy."""
    module, colon, name = text.partition(":")
    if not colon:
        return text
    if "" not in sys.path:
        # Modules of the current folder, as with `python -m`.
        sys.path.insert(0, "")
    try:
        found: Any = getattr(import_module(module), name)
    except ImportError as error:
        raise _invalid(text, f"module '{module}' cannot be imported: {error}") from None
    except AttributeError:
        raise _invalid(text, f"module '{module}' has no class '{name}'") from None
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise _invalid(text, f"'{name}' is no subclass of mavstream_server.scheduling.policy.Policy")
    if not isinstance(getattr(found, "name", None), str):
        raise _invalid(text, f"class '{name}' has no name: give it `name: ClassVar = \"...\"`")
    if POLICIES.get(found.name) is not found:
        if found.name in POLICIES:
            raise _invalid(text, f"there is a policy named '{found.name}' already: give yours another name")
        register(found)
    return found.name


def _invalid(text: str, reason: str) -> InvalidPolicy:
    return InvalidPolicy([ProblemItem(pointer="policy", code="unknown_policy", detail=f"'{text}': {reason}")])
