"""QoS targets of a query: as a person reads them, and as a form that changes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mavstream_page.components.html import Child, Markup, h
from mavstream_page.components.marks import select
from mavstream_protocol import QosSpec

_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "p99.9")


def targets_said(qos: QosSpec) -> list[str]:
    """Return each target in a few words, such as `p95 at most 200ms`."""
    written = qos.model_dump(mode="json", exclude_none=True)
    said = []
    if qos.latency is not None:
        said.append(f"{qos.latency.statistic} at most {written['latency'][qos.latency.statistic]}")
    if qos.memory is not None:
        said.append(f"memory at most {written['memory']['at_most']}")
    if qos.throughput is not None:
        said.append(f"at least {qos.throughput.at_least:g} rows/s")
    if qos.max_loss:
        said.append(f"loss at most {written['max_loss']}")
    return said


def targets_form(query: str, qos: QosSpec) -> Markup:
    """Return a form with all targets of a query; an empty field is no target."""
    written = qos.model_dump(mode="json", exclude_none=True)
    statistic = qos.latency.statistic if qos.latency else "p95"
    rate = f"{qos.throughput.at_least:g}" if qos.throughput else None
    known = _STATISTICS if statistic in _STATISTICS else (*_STATISTICS, statistic)
    kinds = [(one, one) for one in known]
    return h(
        "form",
        h("label", "Latency", select(None, "statistic", kinds, statistic, "Statistic of the latency target")),
        _field("at most", "latency", written.get("latency", {}).get(statistic), "50ms", "Latency target"),
        _field("Memory at most", "memory", written.get("memory", {}).get("at_most"), "64MB"),
        _field("Rows/s at least", "throughput", rate, "10000"),
        _field("Loss at most", "max_loss", written["max_loss"] if qos.max_loss else None, "0%"),
        h("button", "Set targets", type="submit", class_="button"),
        data_action="targets",
        data_query=query,
        id="targets",
    )


def changed_targets(qos: QosSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification with the targets of a form; weights, worth and tolerances stay.

    Raises ValueError; the server refuses what is not a duration, a size or a share.
    """
    written = qos.model_dump(mode="json", exclude_none=True)
    latency, memory, throughput, loss = (
        str(given.get(name, "")).strip() for name in ("latency", "memory", "throughput", "max_loss")
    )
    kept = {name: {"tolerance": one["tolerance"]} for name, one in _targets(written).items()}
    made = {name: value for name, value in written.items() if name in ("weights", "worth")}
    if latency:
        made["latency"] = {**kept.get("latency", {}), str(given.get("statistic", "p95")): latency}
    if memory:
        made["memory"] = {**kept.get("memory", {}), "at_most": memory}
    if throughput:
        made["throughput"] = {**kept.get("throughput", {}), "at_least": _rate(throughput)}
    if loss:
        made["max_loss"] = loss
    return made


def _targets(written: Mapping[str, Any]) -> dict[str, Any]:
    return {name: written[name] for name in ("latency", "memory", "throughput") if name in written}


def _rate(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"throughput target {text!r}: expected a number of rows per second") from None


def _field(title: Child, name: str, value: str | None, example: str, label: str | None = None) -> Markup:
    return h(
        "label", title, h("input", name=name, value=value, placeholder=example, size=8, aria_label=label)
    )
