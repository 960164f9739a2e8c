"""What the page shows, without a browser: markup, numbers, histories, drafts, completion."""

from __future__ import annotations

import pytest

from mavstream_page.components import numbers
from mavstream_page.components.charts import Series, line_chart
from mavstream_page.components.html import h
from mavstream_page.components.targets import changed_targets, targets_form, targets_said
from mavstream_page.composer.names import names_of
from mavstream_page.data.history import History, Rate, RecentLatency, percentile
from mavstream_protocol import QosSpec
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.sql import Catalog
from mavstream_protocol.typed_plan import StreamShape

READINGS = StreamShape(Schema((Field("room", FieldType.STRING), Field("celsius", FieldType.FLOAT))))
CATALOG = Catalog({"readings": READINGS}, {})


def test_everything_that_is_not_markup_is_escaped() -> None:
    assert h("p", "<script>", h("b", "&"), title='"><img>') == (
        '<p title="&quot;&gt;&lt;img&gt;">&lt;script&gt;<b>&amp;</b></p>'
    )


def test_a_form_changes_targets_and_keeps_what_it_does_not_show() -> None:
    qos = QosSpec.model_validate(
        {
            "latency": {"p99.5": "20ms", "tolerance": "5%"},
            "memory": {"at_most": "64MB"},
            "weights": {"latency": 3},
            "max_loss": "1%",
            "worth": {"readings": "celsius"},
        }
    )
    assert targets_said(qos) == ["p99.5 at most 20ms", "memory at most 64MB", "loss at most 1%"]
    assert 'value="p99.5" selected' in targets_form("hot", qos)
    given = {"statistic": "mean", "latency": " 5ms ", "memory": "", "throughput": "100", "max_loss": ""}
    changed = QosSpec.model_validate(changed_targets(qos, given))
    assert targets_said(changed) == ["mean at most 5ms", "at least 100 rows/s"]
    assert changed.latency is not None
    assert changed.latency.tolerance == 0.05
    assert (changed.weights, changed.worth) == (qos.weights, qos.worth)
    with pytest.raises(ValueError, match="expected a number of rows per second"):
        changed_targets(qos, {"throughput": "many"})


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (numbers.count(12_345), "12.3 k"),
        (numbers.rate(None), numbers.NOTHING),
        (numbers.milliseconds(0.05), "50 µs"),
        (numbers.milliseconds(0), "0 ms"),
        (numbers.milliseconds(1500), "1.50 s"),
        (numbers.size(3 << 20), "3 MiB"),
        (numbers.percent(0.123), "12.3 %"),
        (numbers.duration(7200), "2 h"),
    ],
)
def test_numbers_are_shown_with_units(shown: str, expected: str) -> None:
    assert shown == expected


def test_a_rate_starts_anew_when_its_counter_does() -> None:
    rate = Rate()
    for at, total in ((0.0, 100), (1.0, 150), (2.0, 10), (4.0, 30)):
        rate.count(at, total)
    assert [value for _, value in rate.history.points] == [50.0, None, 10.0]


def test_histories_forget_what_is_older_than_five_minutes() -> None:
    history = History()
    for at in range(0, 1000, 100):
        history.add(float(at), 1.0)
    assert [at for at, _ in history.points] == [600.0, 700.0, 800.0, 900.0]


def test_percentiles_are_those_of_the_last_seconds() -> None:
    latency = RecentLatency(window=10.0)
    latency.count(0.0, {160: 1000})
    latency.count(11.0, {160: 1000, 184: 10})
    latency.count(12.0, {160: 1000, 184: 20})
    assert latency.percentiles[50].last == percentile({184: 1}, 50)


def test_a_chart_says_its_values_in_words() -> None:
    history = History()
    history.add(0.0, 3.0)
    history.add(10.0, 4.0)
    chart = line_chart("p95 latency", [Series("alarms", history, 0)], numbers.milliseconds, target=5.0)
    assert "now alarms 4 ms" in chart
    assert "target 5 ms" in chart


def test_columns_functions_and_key_words_are_completed() -> None:
    names = names_of(CATALOG)
    assert names["sources"]["readings"] == {
        "kind": "stream",
        "columns": {"room": "string", "celsius": "float"},
    }
    assert names["functions"]["avg"] == "aggregate"
    assert {"select", "group by", "tumble"} <= set(names["keywords"])
