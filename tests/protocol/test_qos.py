from __future__ import annotations

import pytest
from pydantic import ValidationError

from mavstream_protocol import EQUAL_WEIGHTS, LatencyTarget, QosSpec, QueryClass

HOW = 'give exactly one of {"mean": "10ms"}, {"p95": "50ms"} or {"percentile": 95, "at_most": "50ms"}'


def refusal(**values: object) -> tuple[tuple[object, ...], str]:
    with pytest.raises(ValidationError) as caught:
        QosSpec.model_validate(values)
    (error,) = caught.value.errors()
    return error["loc"], error["msg"]


@pytest.mark.parametrize(
    ("written", "percentile", "at_most", "statistic"),
    [
        ({"mean": "10ms"}, None, 10_000, "mean"),
        ({"p50": "10ms"}, 50, 10_000, "p50"),
        ({"p95": "50ms"}, 95, 50_000, "p95"),
        ({"p99.9": "1s"}, 99.9, 1_000_000, "p99.9"),
        ({"percentile": 95, "at_most": "50ms"}, 95, 50_000, "p95"),
    ],
)
def test_a_latency_target_has_a_short_and_a_general_form(
    written: dict[str, object], percentile: float | None, at_most: int, statistic: str
) -> None:
    target = LatencyTarget.model_validate(written)
    assert (target.percentile, target.at_most, target.statistic) == (percentile, at_most, statistic)
    assert target.tolerance == 0.1


def test_a_latency_target_is_written_in_its_short_form() -> None:
    target = LatencyTarget.model_validate({"percentile": 95, "at_most": "50ms", "tolerance": 0.2})
    assert target.model_dump() == {"p95": "50ms", "tolerance": "20%"}
    assert LatencyTarget.model_validate(target.model_dump()) == target


@pytest.mark.parametrize(
    ("latency", "message"),
    [
        ({}, f"latency target has nothing: {HOW}"),
        ({"p95": "1s", "mean": "1s"}, f"latency target has p95, mean: {HOW}"),
        ({"p95": "1s", "at_most": "1s"}, f"latency target has p95, at_most: {HOW}"),
        ({"percentile": 95}, f"latency target lacks 'at_most': {HOW}"),
        ({"at_most": "1s"}, f"latency target lacks 'percentile': {HOW}"),
        (
            {"p999": "1s"},
            "latency percentile 999 is not above 0 and below 100: write for example p95, or p99.9",
        ),
        (
            {"percentile": 0, "at_most": "1s"},
            "latency percentile 0 is not above 0 and below 100: write for example p95, or p99.9",
        ),
    ],
)
def test_a_wrong_latency_target_is_explained(latency: dict[str, object], message: str) -> None:
    assert refusal(latency=latency) == (("latency",), message)


@pytest.mark.parametrize(
    ("values", "where", "message"),
    [
        (
            {"latency": {"p95": 50}},
            ("latency", "at_most"),
            "duration 50 is a bare number: write text with a unit, such as 500ms, 2s or 1h",
        ),
        (
            {"weights": {"latency": 0}},
            ("weights",),
            "weights are all zero: give at least one objective a weight above zero",
        ),
        (
            {"weights": {"latency": -1}},
            ("weights", "latency"),
            "this must be a finite number of zero or more, got -1",
        ),
        (
            {"weights": {"memory": float("inf")}},
            ("weights", "memory"),
            "this must be a finite number of zero or more, got inf",
        ),
        (
            {"throughput": {"at_least": "fast"}},
            ("throughput", "at_least"),
            "this must be a number, got a value of type str",
        ),
        (
            {"throughput": {"at_least": 0}},
            ("throughput", "at_least"),
            "throughput target must be above zero rows per second",
        ),
        (
            {"memory": {"at_most": "0B"}},
            ("memory", "at_most"),
            "size must be above zero: write for example 64MB, 1.5GB or 512KiB",
        ),
    ],
)
def test_errors_in_targets_are_explained(
    values: dict[str, object], where: tuple[object, ...], message: str
) -> None:
    assert refusal(**values) == (where, message)


def test_no_targets_mean_equal_weights_and_no_loss() -> None:
    qos = QosSpec()
    assert (qos.latency, qos.memory, qos.throughput, qos.max_loss) == (None, None, None, 0.0)
    assert qos.weights == EQUAL_WEIGHTS


def test_objectives_left_out_of_given_weights_weigh_nothing() -> None:
    weights = QosSpec.model_validate({"weights": {"latency": 3}}).weights
    assert (weights.latency, weights.memory, weights.throughput) == (3, 0, 0)


def test_targets_are_written_as_they_were_given() -> None:
    written = {
        "latency": {"p95": "50ms", "tolerance": "20%"},
        "memory": {"at_most": "64MB"},
        "throughput": {"at_least": 10_000.0},
        "weights": {"latency": 3.0, "memory": 1.0},
        "max_loss": "1%",
    }
    qos = QosSpec.model_validate(written)
    assert qos.model_dump(mode="json", exclude_defaults=True) == written
    assert QosSpec.model_validate_json(qos.model_dump_json()) == qos


def test_the_json_schema_shows_the_forms_that_clients_write() -> None:
    schema = QosSpec.model_json_schema()
    assert {"mean", "p95", "percentile", "at_most", "tolerance"} <= set(
        schema["$defs"]["LatencyTarget"]["properties"]
    )
    assert all(shown.get("description") for shown in schema["properties"].values())
    assert schema["properties"]["max_loss"]["default"] == "0%"


def test_a_class_may_have_a_latency_target() -> None:
    alarms = QueryClass.model_validate({"name": "alarms", "latency": "20ms"})
    assert alarms.latency == 20_000
    assert alarms.model_dump(mode="json")["latency"] == "20ms"
    assert QueryClass(name="batch").model_dump(mode="json")["latency"] is None
    for wrong, why in (("0ms", "must be above zero"), (20, "is a bare number"), ("soon", "cannot be read")):
        with pytest.raises(ValidationError, match=why):
            QueryClass.model_validate({"name": "alarms", "latency": wrong})


def test_a_class_has_a_priority_from_1_to_1000() -> None:
    assert QueryClass(name="alarms", priority=6).priority == 6
    assert QueryClass(name="batch").priority == 1
    for wrong in (0, 1001, 2.5, "6", True):
        with pytest.raises(ValidationError):
            QueryClass.model_validate({"name": "alarms", "priority": wrong})


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (None, {"latency": 1, "memory": 1}),
        ({"latency": 3, "memory": 1}, {"latency": 1.5, "memory": 0.5}),
        ({"latency": 3, "memory": 1, "throughput": 96}, {"latency": 1.5, "memory": 0.5}),
        ({"latency": 1e308, "memory": 1e308}, {"latency": 1, "memory": 1}),
        ({"memory": 5}, {"latency": 0, "memory": 2}),
        ({"throughput": 1}, {"latency": 1, "memory": 1}),
    ],
)
def test_weights_are_relative_among_the_targets_of_a_query(
    weights: dict[str, float] | None, expected: dict[str, float]
) -> None:
    given = {} if weights is None else {"weights": weights}
    qos = QosSpec.model_validate({"latency": {"p95": "1s"}, "memory": {"at_most": "1MB"}, **given})
    assert qos.target_weights == pytest.approx(expected)


def test_a_single_target_weighs_one_whatever_its_weight() -> None:
    qos = QosSpec.model_validate({"memory": {"at_most": "1MB"}, "weights": {"latency": 9, "memory": 1}})
    assert qos.target_weights == {"memory": 1.0}
    assert QosSpec().target_weights == {}
