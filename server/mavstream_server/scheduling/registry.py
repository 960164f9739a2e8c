"""The policies there are, by their public names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from mavstream_protocol.problems import InvalidObject, ProblemItem
from mavstream_server.scheduling.policies.rr import RoundRobin
from mavstream_server.scheduling.policies.wrr import WeightedRoundRobin
from mavstream_server.scheduling.policy import Policy
from mavstream_server.scheduling.view import View

_ALL: tuple[type[Policy[Any]], ...] = (RoundRobin, WeightedRoundRobin)

POLICIES: dict[str, type[Policy[Any]]] = {policy.name: policy for policy in _ALL}
if len(POLICIES) != len(_ALL):
    raise RuntimeError("two policies have the same name")


class InvalidPolicy(InvalidObject):
    """A policy that is not known, or options that it does not take."""

    code = "invalid_policy"
    title = "The scheduling policy is not valid"


def make_policy(name: str, view: View, options: Mapping[str, Any] | None = None) -> Policy[Any]:
    """Build a policy by its public name; raises InvalidPolicy."""
    kind = POLICIES.get(name)
    if kind is None:
        detail = f"unknown policy {name!r}; known are: {', '.join(sorted(POLICIES))}"
        raise InvalidPolicy([ProblemItem(pointer="policy", code="unknown_policy", detail=detail)])
    try:
        checked = kind.Options.model_validate(dict(options or {}))
    except ValidationError as error:
        raise InvalidPolicy(
            [
                ProblemItem(
                    pointer="/".join(["options", *map(str, item["loc"])]),
                    code="invalid_option",
                    detail=f"policy {name!r}: {item['msg']} (came {item['input']!r}); "
                    f"its options are: {', '.join(kind.Options.model_fields) or 'none'}",
                )
                for item in error.errors()
            ]
        ) from None
    return kind(view, checked)
