"""Streams, stored tables and classes: who reads them, and how to make and change them."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

from mavstream_page.components import numbers
from mavstream_page.components.fields import fields_shown
from mavstream_page.components.html import Markup, h, join
from mavstream_page.components.marks import GOOD, card, empty, table
from mavstream_page.components.screen import View
from mavstream_page.components.stream_card import readers_named, stream_card
from mavstream_page.data.hub import Hub
from mavstream_page.data.streams import StreamsTopic, StreamTopic
from mavstream_protocol import QueryClass
from mavstream_protocol.wire.resources import StreamInfo, TableInfo


class StreamsView(View):
    """All streams, tables and classes."""

    path = "/streams"
    title = "Streams"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._topic = hub.topic(StreamsTopic.key, StreamsTopic)
        self._opened: dict[str, StreamTopic] = {}

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The lists, and the streams that are open."""
        return (StreamsTopic.key, *(_key(name) for name in self._opened))

    @property
    def _may_create(self) -> bool:
        return bool(self.role)

    async def act(self, action: dict[str, Any]) -> None:
        """Create, open or delete a stream, or change a class."""
        client, what = self.hub.client, action["action"]
        if what == "create-stream":
            name, fields = str(action.get("name", "")).strip(), parse_fields(str(action.get("fields", "")))
            event_time = str(action.get("event_time", "")).strip() or None
            await client.create_stream(name=name, fields=fields, event_time=event_time)
            self.screen.say(GOOD, f"Stream {name} was created.")
        elif what == "delete-stream":
            await client.delete_stream(str(action["stream"]))
            self.screen.say(GOOD, f"Stream {action['stream']} was deleted.")
        elif what == "class":
            latency = str(action.get("latency", "")).strip() or None
            name, priority = str(action["name"]).strip(), _priority(action.get("priority"))
            await client.put_class(name, priority, str(action.get("description", "")), latency)
            self.screen.say(GOOD, f"Class {name} has priority {priority}.")
        elif what == "open-stream":
            self._open(str(action["stream"]), bool(action["open"]))
        elif what == "cancel-upload":
            upload = self.hub.uploads.get(str(action["stream"]))
            if upload is not None:
                upload.cancel()
        elif what == "refused":
            raise ValueError(str(action["problem"]))
        else:
            await super().act(action)

    def _open(self, stream: str, is_open: bool) -> None:
        """Watch the rows and readers of a stream, or no longer."""
        if is_open:
            make = partial(StreamTopic, stream, self._topic)
            self._opened[stream] = self.hub.topic(_key(stream), make)
        else:
            self._opened.pop(stream, None)
        self.screen.watch_again()

    def render(self) -> Markup:
        """Return the three lists."""
        if self._topic.polled is None:
            return empty("Reading from the server …")
        return join(h("h1", "Streams", class_="hidden"), self._streams(), self._classes(), self._tables())

    def _streams(self) -> Markup:
        streams = sorted(self._topic.streams.values(), key=lambda one: (-one.importance, one.name))
        shown = [self._stream(each) for each in streams] or [
            empty("There are no streams yet: create one below.")
        ]
        form = None
        if self._may_create:
            form = h(
                "details",
                h("summary", "Create a stream"),
                h(
                    "form",
                    h("label", "Name", h("input", name="name", required=True, placeholder="readings")),
                    h(
                        "label",
                        "Fields",
                        h(
                            "input",
                            name="fields",
                            required=True,
                            size=44,
                            placeholder="at timestamp, room string, celsius float null",
                        ),
                    ),
                    h(
                        "label",
                        "Event time",
                        h("input", name="event_time", placeholder="at, or none", size=12),
                    ),
                    h("button", "Create", type="submit", class_="button primary"),
                    data_action="create-stream",
                ),
                class_="card",
                id="create-stream",
            )
        return join(h("div", h("h2", "Streams"), class_="head"), *shown, form)

    def _stream(self, info: StreamInfo) -> Markup:
        return stream_card(
            info,
            self._topic.rates[info.name],
            self._topic.readers.get(info.name, []),
            self._opened.get(info.name),
            self.hub.uploads.get(info.name),
            may_feed=self.role in ("admin", "feeder"),
            may_delete=self.is_admin,
        )

    def _classes(self) -> Markup:
        rows = [self._class(each) for each in self._topic.classes]
        new = None
        if self.is_admin:
            new = h(
                "details",
                h("summary", "Create a class"),
                _class_form("new-class", h("label", "Name", h("input", name="name", required=True)), None),
            )
        note = None if self.is_admin else "Priorities are changed by administrators."
        return card("Classes", h("ul", rows, class_="plain"), new, aside=note)

    def _class(self, one: QueryClass) -> Markup:
        target = f"target {numbers.milliseconds(one.latency / 1000)}" if one.latency else "no latency target"
        if not self.is_admin:
            return h(
                "li", h("b", one.name), f" priority {one.priority}, {target}", data_key=f"class-{one.name}"
            )
        name = h("input", type="hidden", name="name", value=one.name)
        return h(
            "li",
            h("b", one.name),
            " ",
            h("small", one.description),
            _class_form(f"class-form-{one.name}", name, one),
            data_key=f"class-{one.name}",
        )

    def _tables(self) -> Markup:
        if not self._topic.tables:
            return card("Stored tables", empty("There are none. mavstream tables put NAME FILE stores one."))
        rows = [self._table(each) for each in self._topic.tables.values()]
        return card(
            "Stored tables",
            table(["Table", "Fields", "#Rows", "#Size", "Version", "Joined by"], rows, "Stored tables"),
        )

    def _table(self, one: TableInfo) -> Markup:
        return h(
            "tr",
            h("th", one.name, scope="row"),
            h("td", fields_shown(one.fields, None)),
            h("td", numbers.count(one.rows), class_="number"),
            h("td", numbers.size(one.bytes), class_="number"),
            h("td", f"{one.version}, since {numbers.clock_time(one.since)}"),
            h("td", readers_named(self._topic.readers.get(one.name, []))),
            data_key=f"table-{one.name}",
        )


def _key(stream: str) -> Hashable:
    return ("stream", stream)


def parse_fields(text: str) -> list[dict[str, Any]]:
    """Return the fields in `at timestamp, room string, celsius float null`; raises ValueError."""
    fields = []
    for part in filter(None, map(str.strip, text.split(","))):
        words = part.split()
        if len(words) not in (2, 3) or words[2:] not in ([], ["null"]):
            raise ValueError(
                f"field {part!r}: expected NAME TYPE or NAME TYPE null, such as 'celsius float null'"
            )
        fields.append({"name": words[0], "type": words[1], "nullable": len(words) == 3})
    return fields


def _priority(given: object) -> int:
    text = str(given).strip()
    if not text.isdecimal():
        raise ValueError(f"priority {text!r}: expected a number from 1 to 1000")
    return int(text)


def _class_form(id_: str, name: Markup, one: QueryClass | None) -> Markup:
    latency = numbers.milliseconds(one.latency / 1000).replace(" ", "") if one and one.latency else None
    return h(
        "form",
        name,
        h(
            "label",
            "Priority",
            h(
                "input",
                name="priority",
                type="number",
                min=1,
                max=1000,
                value=one.priority if one else 1,
                required=True,
                aria_label=f"Priority of {one.name}" if one else "Priority",
            ),
        ),
        h("label", "Latency target", h("input", name="latency", value=latency, placeholder="none", size=8)),
        h("input", type="hidden", name="description", value=one.description) if one else None,
        h("button", "Save", type="submit", class_="button", aria_label=f"Save {one.name}" if one else None),
        data_action="class",
        id=id_,
    )
