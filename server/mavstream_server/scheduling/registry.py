"""Registry of scheduling policies by public name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from mavstream_protocol.errors import InvalidObject, ProblemItem
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.names import closest
from mavstream_server.scheduling.policy import Level, Policy, PolicyOptions
from mavstream_server.scheduling.view import View

POLICIES: dict[str, type[Policy[Any]]] = {}
"""Filled by `register` when the package `policies` is imported."""

PolicyT = TypeVar("PolicyT", bound=type[Policy[Any]])


def register(policy: PolicyT) -> PolicyT:
    """Class decorator that adds a policy to the registry."""
    if policy.name in POLICIES:
        raise RuntimeError(f"two policies have the name {policy.name!r}")
    POLICIES[policy.name] = policy
    return policy


class InvalidPolicy(InvalidObject):
    """Unknown policy, or options that the policy does not accept."""

    code = "invalid_policy"
    title = "The scheduling policy is not valid"


def make_policy(name: str, view: View, options: Mapping[str, Any] | None = None) -> Policy[Any]:
    """Create a policy by its public name; raises InvalidPolicy."""
    return _kind(name)(view, check_options(name, options))


def check_options(name: str, options: Mapping[str, Any] | None = None) -> PolicyOptions:
    """Return the options of a policy, validated by its model; raises InvalidPolicy."""
    kind = _kind(name)
    try:
        return kind.Options.model_validate(dict(options or {}))
    except ValidationError as error:
        known = ", ".join(kind.Options.model_fields) or "none"
        raise InvalidPolicy([_invalid_option(name, item, known) for item in causes(error.errors())]) from None


def _invalid_option(policy: str, error: Mapping[str, Any], known: str) -> ProblemItem:
    option = quoted(error, "the options")
    if error["type"] == "extra_forbidden":
        text = f"policy '{policy}' has no option {option}: its options are {known}"
    else:
        text = f"policy '{policy}': {sentence(error, option)}; its options are {known}"
    pointer = "/".join(["options", *map(str, error["loc"])])
    return ProblemItem(pointer=pointer, code="invalid_option", detail=text)


def _kind(name: str) -> type[Policy[Any]]:
    kind = POLICIES.get(name)
    if kind is None:
        close = closest(name, POLICIES, 1)
        advice = f"did you mean {close[0]!r}? " if close else ""
        detail = f"unknown policy {name!r}; {advice}known are: {', '.join(sorted(POLICIES))}"
        raise InvalidPolicy([ProblemItem(pointer="policy", code="unknown_policy", detail=detail)])
    return kind


def weighs(name: str, options: Mapping[str, Any] | None = None) -> bool:
    """Return whether a policy gives more to queries of higher weight; raises InvalidPolicy."""
    inner = getattr(check_options(name, options), "inner", None)
    return _kind(inner.policy if isinstance(inner, InnerPolicy) else name).weighs


class InnerPolicy(BaseModel):
    """Any operator-level policy, with its options, used inside another policy."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    policy: str
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        try:
            check_options(self.policy, self.options)
        except InvalidPolicy as error:
            raise ValueError("; ".join(item.detail for item in error.items)) from None
        if POLICIES[self.policy].level is not Level.OPERATOR:
            raise ValueError(
                f"{self.policy!r} is a policy of {POLICIES[self.policy].level} level and cannot be used "
                "inside another policy; choose one of operator level"
            )
        return self

    def make(self, view: View) -> Policy[Any]:
        """Create the policy."""
        return make_policy(self.policy, view, self.options)
