"""Why a query gives no results: what became of the rows that it read."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_page.components import numbers
from mavstream_page.components.marks import BAD, GOOD, INFO, QUIET, WARNING
from mavstream_page.data.queries import QueryTopic

_COUNTERS = {
    "late": "rows arrived after all their windows had closed; the stream's lateness says how long it waits",
    "missed": "rows were not used because their windows began before the query did or during a pause",
    "outside": "rows lie outside of all windows",
    "errors": "rows made an expression fail, such as a division of incompatible values",
    "unmatched": "rows met no condition of the split",
    "unread": "rows went to an output of the split that nobody reads",
    "shed": "rows were dropped to keep targets",
    "skipped_windows": "windows were skipped because they could not be whole",
}


def reasons(topic: QueryTopic) -> list[tuple[str, str]]:
    """Return what a person should know, the decisive things first: a kind of mark and a sentence."""
    return list(_reasons(topic))


def _reasons(topic: QueryTopic) -> Iterator[tuple[str, str]]:
    info, plan = topic.info, topic.plan
    assert info is not None
    assert plan is not None
    state = info.state.value
    if state != "running":
        yield (
            BAD if state == "failed" else INFO,
            f"The query is {state}" + (f": {info.reason}." if info.reason else "."),
        )
    for stream in topic.streams.values():
        if stream.position == 0:
            yield WARNING, f"Stream {stream.name} has no rows yet: feed it."
        elif stream.watermark is None:
            yield INFO, f"Stream {stream.name} has no watermark yet, so no window of it has closed."
        else:
            held, until = numbers.count(stream.position), numbers.clock_time(stream.watermark)
            yield QUIET, f"Stream {stream.name} has {held} rows; its watermark stands at {until}."
    sources = [each for each in plan.operators if each.operator == "source"]
    read, waiting = sum(each.tuples for each in sources), sum(each.queued for each in sources)
    if sources:
        kind = GOOD if read else WARNING
        yield kind, f"It has read {numbers.count(read)} rows; {numbers.count(waiting)} wait to be read."
    for each in plan.operators:
        if each.operator in ("select", "join", "except", "distinct") and each.tuples:
            kind = WARNING if each.selectivity == 0 and not info.results else QUIET
            taken, kept = numbers.count(each.tuples), numbers.percent(each.selectivity)
            yield kind, f"{each.name} ({each.operator}) took {taken} rows and passes on {kept} of them."
    for operator, counted in info.counters.items():
        for reason, rows in counted.items():
            if rows:
                yield WARNING, f"{operator}: {numbers.count(rows)} {_COUNTERS.get(reason, reason)}."
    if info.results:
        yield GOOD, f"It has given {numbers.count(info.results)} answers."
    elif any(each.operator in ("aggregate", "distinct", "except") for each in plan.operators) and read:
        yield INFO, "Windows answer when the watermark passes their end: the first may still be open."
