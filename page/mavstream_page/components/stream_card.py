"""A stream: its rates, fields, readers with their lag, newest rows, and files that are appended to it."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_page.components import numbers
from mavstream_page.components.charts import bar, sparkline
from mavstream_page.components.fields import fields_shown
from mavstream_page.components.html import Child, Markup, h, join
from mavstream_page.components.marks import BAD, GOOD, INFO, QUERY_STATES, QUIET, WARNING, button, mark, table
from mavstream_page.components.results import result_table
from mavstream_page.data.history import Rate
from mavstream_page.data.streams import SHOWN_READERS, StreamTopic
from mavstream_page.data.uploads import MOST_BYTES, Phase, Upload
from mavstream_protocol.streams import DerivedStreamSpec
from mavstream_protocol.wire.resources import QueryInfo, StreamInfo

_FEW = 4
_SAID = {
    Phase.RECEIVING: "is being received",
    Phase.CHECKING: "is being checked",
    Phase.APPENDING: "is being appended",
}


def stream_card(
    info: StreamInfo,
    rate: Rate,
    readers: Sequence[QueryInfo],
    opened: StreamTopic | None,
    upload: Upload | None,
    *,
    may_feed: bool,
    may_delete: bool,
) -> Markup:
    """Return a card that can be opened; `opened` has what is read only for open ones."""
    inside: list[Child] = [h("p", "Reading from the server …", class_="soft")]
    if opened is not None and opened.polled is not None:
        inside = [
            h("h3", "Fields"),
            fields_shown(info.spec.fields, info.spec.event_time),
            h("h3", "Read by"),
            _readers(info, readers, opened),
            h("h3", "Newest rows"),
            _rows(info, opened),
        ]
    if info.producers:
        inside += [h("h3", "Producers"), h("p", ", ".join(info.producers), class_="soft")]
    derived = isinstance(info.spec, DerivedStreamSpec)
    if may_feed and not derived:
        inside.append(_drop(info.name))
    if may_delete and not readers:
        inside.append(
            button(
                "Delete",
                "delete-stream",
                kind="small danger",
                stream=info.name,
                title=f"Delete {info.name}",
                confirm=f"Delete {info.name} and its rows?",
            )
        )
    return h(
        "details",
        h(
            "summary",
            h("span", h("b", info.name), _marks(info, readers), class_="titles"),
            _facts(info, rate),
        ),
        inside,
        _upload(upload) if upload else None,
        class_="card stream",
        data_key=f"stream-{info.name}",
        data_toggle="open-stream",
        data_stream=info.name,
    )


def readers_named(queries: Sequence[QueryInfo]) -> Markup:
    """Return links to the first readers."""
    if not queries:
        return mark(QUIET, "nobody")
    links = [join(h("a", each.spec.name, href=f"/queries/{each.spec.name}"), " ") for each in queries[:_FEW]]
    more = len(queries) - _FEW
    return h("p", links, f"and {more} more" if more > 0 else None)


def _marks(info: StreamInfo, readers: Sequence[QueryInfo]) -> list[Child]:
    marks: list[Child] = []
    if isinstance(info.spec, DerivedStreamSpec):
        marks.append(mark(INFO, "derived", f"has the results of query {info.spec.derived_from}"))
    if info.overloaded:
        marks.append(mark(BAD, "overloaded", "Rows arrive faster than any query reads them."))
    if info.over_quota:
        marks.append(mark(WARNING, "over its quota", f"held by {info.held_by}"))
    late = sum(query.late for query in readers)
    if late:
        marks.append(mark(WARNING, f"{numbers.count(late)} late", "late rows of the queries that read it"))
    return marks


def _facts(info: StreamInfo, rate: Rate) -> Markup:
    read = f"importance {info.importance}" if info.importance else "nobody reads it"
    return h(
        "div",
        h("span", sparkline(rate.history), h("b", numbers.rate(rate.last))),
        h("span", f"{numbers.count(info.position)} rows"),
        h("span", numbers.size(info.bytes), " on disk"),
        h("span", "watermark ", numbers.clock_time(info.watermark)),
        h("span", read),
        class_="facts",
    )


def _readers(info: StreamInfo, readers: Sequence[QueryInfo], opened: StreamTopic) -> Markup:
    if not readers:
        return mark(QUIET, "nobody")
    rows = [
        h(
            "tr",
            h("th", h("a", one.query.spec.name, href=f"/queries/{one.query.spec.name}"), scope="row"),
            h("td", one.query.spec.class_),
            h("td", mark(QUERY_STATES[one.query.state.value], one.query.state.value)),
            h("td", numbers.count(one.waiting), class_="number"),
            h("td", numbers.count(one.query.late), class_="number"),
            data_key=f"reader-{info.name}-{one.query.id}",
        )
        for one in opened.readers
    ]
    more = len(readers) - SHOWN_READERS
    return join(
        table(
            ["Query", "Class", "State", "#Lag (rows)", "#Late rows"], rows, f"Queries that read {info.name}"
        ),
        h("p", f"and {more} more", class_="soft") if more > 0 else None,
    )


def _rows(info: StreamInfo, opened: StreamTopic) -> Markup:
    if opened.unreadable is not None:
        return h("p", "A token of this role does not read rows.", class_="soft", title=opened.unreadable)
    if not opened.rows:
        return h("p", "It has no rows yet: feed it, or drop a file onto it.", class_="soft")
    most = len(opened.rows)
    return join(
        result_table(opened.rows, info.spec.fields, f"Newest rows of {info.name}", most),
        h("p", f"The newest {most} of {numbers.count(opened.position)}, the newest first.", class_="soft"),
    )


def _drop(name: str) -> Markup:
    limit = f"{MOST_BYTES >> 20} MiB"
    return h(
        "label",
        f"Drop a CSV or Parquet file here, or choose one (up to {limit})",
        h(
            "input",
            type="file",
            accept=".csv,.parquet",
            data_upload=f"/streams/{name}/files",
            data_most=MOST_BYTES,
            data_too_large=f" is larger than {limit}: feed it with mavstream feed {name}=FILE",
            aria_label=f"Rows for {name}",
        ),
        class_="drop",
        data_drop=True,
        # Whatever changes above it, the field stays the one whose dialog is open.
        data_key=f"drop-{name}",
    )


def _upload(upload: Upload) -> Markup:
    """Return how far a file is, and what became of it."""
    cancel = None
    if upload.running:
        share = upload.share
        said = f"{upload.name} {_SAID[upload.phase]}"
        counted = numbers.percent(share) if share is not None else f"{numbers.count(upload.checked)} rows"
        state = join(mark(INFO, upload.phase.value), h("span", said), bar(share, counted))
        cancel = button("Cancel", "cancel-upload", kind="small", stream=upload.stream)
    elif upload.phase is Phase.DONE:
        text = f"{upload.appended:,} rows of {upload.name} were appended.".replace(",", " ")
        state = join(mark(GOOD, "done"), h("span", text))
    else:
        state = join(mark(BAD, "failed"), h("span", f"{upload.name}: {upload.problem}"))
    errors = h("ul", [h("li", each) for each in upload.errors], class_="bad-rows") if upload.errors else None
    return h(
        "div",
        h("div", state, cancel, class_="buttons"),
        errors,
        class_="upload",
        role="status",
        data_key=f"upload-{upload.stream}",
    )
