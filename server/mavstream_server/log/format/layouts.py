"""The layouts of a log's segments: each has the fields that the log had when the segment was begun."""

from __future__ import annotations

from mavstream_protocol.schema import Schema
from mavstream_server.log.format.description import LogDescription
from mavstream_server.log.format.layout import Layout

_NEVER = 1 << 62
"""A serial number that no segment reaches."""


class Layouts:
    """The layouts of all segments of a log, one for segments with the same fields."""

    def __init__(self, description: LogDescription) -> None:
        self.description = description
        self._known: dict[tuple[Schema, int], Layout] = {}

    def of(self, serial: int) -> Layout:
        """Return the layout of a segment."""
        description = self.description.at(serial)
        key = description.schema, description.width_of(serial)
        layout = self._known.get(key)
        if layout is None:
            layout = self._known[key] = Layout(description, key[1])
        return layout

    @property
    def newest(self) -> Layout:
        """The layout of the segments to come."""
        return self.of(_NEVER)

    def update(self, description: LogDescription) -> None:
        """Use a description with more fields, which frames without them read as nulls, or another schema."""
        if description == self.description:
            return
        known, same = self._known, description.earlier == self.description.earlier
        self.description, self._known = description, {}
        for (_, width), layout in known.items() if same else ():
            layout.add_absent(description)
            self._known[description.schema, width] = layout
